"""At the limit on processes and threads, gpudoctor still reports, and names the limit."""

from __future__ import annotations

import importlib
import json
import os
import resource
import threading
from typing import Any

import pytest

from gpudoctor import catalog, doctor, pipes
from gpudoctor.collect import OF_MACHINE, collect
from gpudoctor.interpreter import this_interpreter
from gpudoctor.model import Check
from gpudoctor.worker.child import talking
from gpudoctor.worker.main import Round
from gpudoctor.worker.probes.table import PROBES

NOBODY = 54321


def checks() -> dict[str, Check]:
    return doctor.select(catalog.checks(), "quick")


def without_processes(channel: Any) -> None:
    """Another user, who may not have a single process more."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    taken = collect(this_interpreter(), 20, {}, lambda names: None)
    report = doctor.judge(taken, checks())
    channel.send(
        problems=[entry.problem for entry in report.diagnosis],
        passed=[row.id for row in report.checks if row.status.value == "pass"],
        read=sorted(taken.replies),
        thread=pipes.started(threading.Thread(target=print)),
    )


def test_a_report_where_no_process_can_be_started() -> None:
    doctor.judge(collect(this_interpreter(), 20, {}, lambda names: None), checks())  # loads what the other user may not read
    for probe in OF_MACHINE:
        importlib.import_module("gpudoctor.worker.probes." + probe.replace("-", "_"))
    child, lines = talking(without_processes)
    said: list[dict[str, Any]] = []
    while not lines.ended:
        said += lines.read()
    lines.close()
    assert child.wait(5) == ""
    (found,) = said
    assert "process-limit-reached" in found["problems"]
    assert {"pci", "file:/proc/meminfo", "limits"} <= {*found["read"]}
    assert {"packages", "nvml"}.isdisjoint(found["read"])  # of gpudoctor's own Python, or with a driver that may hang
    assert "torch" not in found["passed"]
    assert found["thread"] is False


def test_what_is_refused_at_first_is_asked_when_others_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes at once, of which one is refused."""
    most, fork = 3, os.fork
    asking = Round(type("Nowhere", (), {"send": lambda self, **message: None})(), "/nowhere", 20, PROBES)

    def refusing() -> int:
        if len(asking.running) >= most:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", refusing)
    asking.run()
    assert asking.known["refused-processes"].value == "Resource temporarily unavailable"
    assert {name for name in asking.known if name.startswith("probe:")} == {f"probe:{probe.name}" for probe in PROBES}
    assert json.dumps([reply.status for name, reply in asking.known.items() if name.startswith("probe:")]).count('"ok"') >= 17
