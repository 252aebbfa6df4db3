"""A container and its host side by side: what differs, whose fault it is, and how a report says it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import machine
import pytest

from gpudoctor import catalog, doctor
from gpudoctor.collect import collect
from gpudoctor.facts import Facts
from gpudoctor.files import snapshot
from gpudoctor.judging.containers import beside_host
from gpudoctor.model import Reply, Report, Skip, Snapshot, Status
from gpudoctor.report import json, markdown, terminal


def report_of(taken: Snapshot) -> Report:
    return doctor.judge(taken, doctor.select(catalog.checks(), "quick"))


@pytest.fixture(scope="module")
def seven_of_eight() -> Report:
    return report_of(machine.load("image-with-seven-of-eight-gpus"))


def test_what_both_see_is_compared(seven_of_eight: Report) -> None:
    rows = {row.what: row for row in seven_of_eight.comparison}
    assert (rows["GPUs"].host, rows["GPUs"].container, rows["GPUs"].differs) == ("8", "7", True)
    assert not rows["kernel module"].differs


def test_a_missing_fact_is_no_difference() -> None:
    taken = machine.load("image-on-healthy-host")
    deaf = replace(taken, replies={**taken.replies, "shm": Reply("timeout"), "cuda": Reply("died")})
    rows = {row.what: row for row in beside_host.comparison(Facts(deaf))}
    assert (rows["shared memory"].container, rows["shared memory"].differs) == ("unknown", False)
    assert rows["libcuda"].container == "unknown"


def test_the_missing_gpu_is_named(seven_of_eight: Report) -> None:
    entry = next(entry for entry in seven_of_eight.diagnosis if entry.problem == "container-sees-fewer-gpus")
    assert [name.split()[1] for name in entry.evidence["missing"]] == ["7"]
    assert not entry.on_host


def test_a_fault_of_the_host_is_told_once_and_as_the_host_s() -> None:
    report = report_of(machine.load("image-on-upgraded-host"))
    assert [(entry.problem, entry.on_host) for entry in report.diagnosis] == [("driver-library-version-mismatch", True)]
    assert "cuda-context" in report.diagnosis[0].explains
    assert "sudo reboot" in [fix.command for fix in report.diagnosis[0].fixes]


def test_a_gpu_of_the_container_is_the_host_s_by_its_uuid() -> None:
    taken = machine.load("image-with-seven-of-eight-gpus")
    swapped = {**taken.host, "nvml:gpu0": taken.host["nvml:gpu3"], "nvml:gpu3": taken.host["nvml:gpu0"]}
    assert beside_host.index_on_host(Facts(replace(taken, host=swapped)), 0) == 3


def test_only_what_the_host_shares_is_judged_there(seven_of_eight: Report) -> None:
    areas = {result.area for result in seven_of_eight.host}
    assert {"driver", "health"} <= areas
    assert areas.isdisjoint({"python", "limits", "libraries", "frameworks"})


def test_every_format_shows_both(seven_of_eight: Report) -> None:
    text = terminal.render(seven_of_eight)
    assert "Image   nvcr.io/nvidia/pytorch:25.09-py3, docker 28.5.2, GPUs by CDI" in text
    assert "on the host" in " ".join(text.split())
    assert [line.split() for line in text.splitlines() if line.startswith("GPUs")] == [["GPUs", "8", "7"]]
    assert "| GPUs | 8 | 7 | differs |" in markdown.render(seven_of_eight)
    assert '"comparison"' in json.render(seven_of_eight)


def test_a_snapshot_keeps_its_host() -> None:
    taken = machine.load("image-with-seven-of-eight-gpus")
    assert snapshot.parse(snapshot.dump(taken), "it") == taken


def test_a_machine_alone_has_no_host() -> None:
    with pytest.raises(Skip):
        _ = Facts(machine.load("h100")).host
    report = report_of(machine.load("h100"))
    assert (report.host, report.comparison) == ((), ())
    assert all(result.status is Status.SKIP for result in report.checks if result.id == "container-gpus")


def test_a_container_that_did_not_start_leaves_the_host_to_be_judged() -> None:
    host = machine.load("h100")
    start = {"engine": "docker", "version": "28.5.2", "image": "x:1", "mode": "none", "arguments": [], "gpus": "none"}
    failed = {**start, "container": "", "replaced": "", "started": False, "message": "docker: no", "code": 125}
    report = report_of(replace(host, replies={**host.replies, "container-start": Reply("ok", failed)}))
    assert report.target["kind"] == "host"
    assert {result.area for result in report.checks} <= set(beside_host.AREAS)
    assert "x:1, docker 28.5.2, without a GPU: it did not start" in " ".join(terminal.render(report).split())


def test_what_judges_is_loaded_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a container that is examined together with its host may cost a crash."""
    at_work: list[int] = []
    together: list[int] = []

    def checks() -> None:
        at_work.append(1)
        time.sleep(0.05)
        together.append(len(at_work))
        at_work.pop()

    class Somewhere:
        path = "somewhere"

        def run(self, job: Any, hear: Callable[[dict[str, Any]], None], meanwhile: Any = None, patience: float = 0) -> int:
            hear({"question": "any", "reply": vars(Reply("missing"))})
            meanwhile()
            return 0

    monkeypatch.setattr(catalog, "checks", checks)
    threads = [threading.Thread(target=collect, args=(Somewhere(), 1.0, {}, print)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [1, 1]
