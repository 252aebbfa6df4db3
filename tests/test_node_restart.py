"""A node's container daemon that was not restarted since its configuration got NVIDIA's runtime: which daemon, and how sure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import machine
import pytest

from gpudoctor import catalog, doctor
from gpudoctor.model import Diagnosis, Reply, Status

CASE = "containerd-not-restarted-since-configured"
CONFIG, K3S = "/etc/containerd/config.toml", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
CRIO = "/etc/crio/crio.conf.d/99-nvidia.conf"
TEXT = '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\n'
START, BEFORE, AFTER = 1794365801.0, 1794365000.0, 1795136589.0


def diagnosed(replies: dict[str, Any]) -> list[Diagnosis]:
    taken = machine.load(CASE)
    told = {question: machine._changed(taken.replies.get(question), change) for question, change in replies.items()}
    checks = doctor.select(catalog.checks(), "quick", ["kubernetes-node"])
    report = doctor.judge(replace(taken, replies={**taken.replies, **told}), checks)
    return [entry for entry in report.diagnosis if entry.check == "kubernetes-node"]


def installed(when: float) -> dict[str, Any]:
    return {"nvidia-container-runtime": {"changed": when}, "nvidia-container-runtime-hook": {"changed": when}} | {
        "nvidia-cdi-hook": {"changed": when}
    }


def test_restarted_since() -> None:
    assert diagnosed({"runtime-processes": {"started": {"containerd": 90_000_000}}}) == []


def test_written_before_the_start() -> None:
    assert diagnosed({"runtime-file-times": {CONFIG: BEFORE}}) == []


def test_not_known_when_written() -> None:
    assert diagnosed({"runtime-file-times": machine.Only({})}) == []


def test_a_toolkit_that_was_there_before_leaves_a_warning() -> None:
    (entry,) = diagnosed({"runtime-programs": installed(BEFORE)})
    assert entry.status is Status.WARN


def test_a_part_that_was_read_is_enough() -> None:
    part = "/etc/containerd/conf.d/99-nvidia.toml"
    text = machine.load(CASE).replies[f"file:{CONFIG}"].value
    replies = {
        f"file:{CONFIG}": f'imports = ["/etc/containerd/conf.d/*.toml"]\n{text}',
        "glob:/etc/containerd/conf.d/*.toml": [part],
        f"file:{part}": text,
        "runtime-file-times": {part: BEFORE},
    }
    assert diagnosed(replies) == []


@pytest.mark.parametrize(
    ("replies", "restart"),
    [
        ({}, "sudo systemctl restart containerd"),
        (
            {
                f"file:{CONFIG}": Reply("missing"),
                f"file:{K3S}.tmpl": TEXT,
                "runtime-file-times": {f"{K3S}.tmpl": AFTER},
            },
            "systemctl restart k3s",
        ),
        (
            {
                f"file:{CONFIG}": Reply("missing"),
                f"file:{CRIO}": TEXT,
                "runtime-file-times": {CRIO: AFTER},
                "runtime-processes": {"started": machine.Only({"crio": 1533})},
            },
            "sudo systemctl restart crio",
        ),
    ],
)
def test_each_daemon_is_restarted_in_its_own_way(replies: dict[str, Any], restart: str) -> None:
    (entry,) = diagnosed(replies)
    assert (entry.problem, entry.status) == ("k8s-device-plugin-no-nvml", Status.FAIL)
    assert restart in entry.fixes[0].command


def test_crio_that_read_its_file() -> None:
    replies = {
        f"file:{CONFIG}": Reply("missing"),
        f"file:{CRIO}": TEXT,
        "runtime-file-times": {CRIO: BEFORE},
        "runtime-processes": {"started": {"crio": 1533}},
    }
    assert diagnosed(replies) == []


def test_a_configuration_of_crio_beside_a_containerd_that_runs_is_a_leftover() -> None:
    (entry,) = diagnosed({f"file:{CRIO}": TEXT, "runtime-file-times": {CRIO: BEFORE}})
    assert "containerd" in entry.fixes[0].command
