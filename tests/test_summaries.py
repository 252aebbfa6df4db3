"""What healthy checks say: an area's line joins it, so each says of what it tells, also without the check's name."""

from __future__ import annotations

import re
from dataclasses import replace

import html_machine
import machine
import pytest

from gpudoctor.judging.measured.shortfalls import between
from gpudoctor.model import Status
from gpudoctor.report import heading
from gpudoctor.report.html import page

# Words that are numbers, versions, units or states: what is told by them alone is told of nothing.
BARE = re.compile(r"\W*((\d[\w.,+]*|[A-Z]\d+[\d.]*|on|off|none|default|unlimited|all|no|only|free|MiB|GiB|W|MHz|CPUs?)[\s,;]*)+")


@pytest.mark.parametrize("case", ["h200-x2-full", "h100-measured", "hgx-h200-x8-measured", "no-gpu"])
def test_a_healthy_check_says_of_what_it_tells(case: str) -> None:
    taken = machine.load(case)
    report = html_machine.judged(taken)
    bare = [
        (result.id, result.message) for result in report.checks if result.status is Status.PASS and BARE.fullmatch(result.message)
    ]
    assert bare == []


def test_the_limits_are_told_with_their_names() -> None:
    report = html_machine.judged(machine.load("h200-x2-full"))
    said = [result.message for result in report.checks if result.area == "limits" and result.id != "cache-folders"]
    assert said == [
        "32 of 32 CPUs",
        "the home folder was not asked for: an older version took this snapshot",
        "251.1 GiB of 251.8 GiB available",
        "memlock unlimited",
        "20000 open files",
        "no sign of strict overcommit accounting",
        "the limit on processes does not apply to root",
        "128 GiB free for temporary files",
        "at most 262144 MiB by cgroup",
        "262144 MiB free in /dev/shm",
    ]


def test_a_heading_says_that_it_is_of_gpus() -> None:
    report = html_machine.judged(machine.load("no-gpu"), "quick")
    assert heading.gpus(replace(report, facts={"gpus": []})) == "no NVIDIA GPU found"
    assert heading.gpus(replace(report, facts={})) == "GPUs unknown"
    assert heading.gpus(replace(report, facts={"pci_gpus": ["0000:01:00.0"]})) == "1 GPU on the PCI bus"


def test_a_machine_without_wsl_has_no_number_of_it_in_the_page() -> None:
    facts = dict(page._facts(html_machine.judged(machine.load("h100-measured"))))
    assert facts["wsl"] == facts["container"] == "no"
    without_driver = dict(page._facts(html_machine.judged(machine.load("no-gpu"), "quick")))
    assert "driver is open" not in without_driver


def test_what_is_alike_on_all_gpus_is_said_once() -> None:
    said = {result.id: result.message for result in html_machine.judged(html_machine.busy()).checks}
    assert said["jax-matmul"].startswith("JAX: 364 to 382 TFLOP/s, first run including compilation")
    assert between([392.1, 392.4]) == "392"
    assert between([51.42, 51.24, 51.3], 1) == "51.2 to 51.4"
