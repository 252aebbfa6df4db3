"""A small catalog and a doctor without a machine, for the tests of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_report import REPORT
from waiting import HOPELESS_SECONDS

import gpudoctor
from gpudoctor import catalog, doctor
from gpudoctor import model as m
from gpudoctor.cli import main
from gpudoctor.model import SNAPSHOT_SCHEMA

PROBLEM = m.Problem(
    id="battery-flat",
    title="The battery is flat",
    why="Nobody charged it.",
    action=m.Action.FIX_CONFIG,
    fixes=(
        m.Fix("Charge it", command="sudo charge", needs=("root",), verify="charge --status", on=("debian", "arch")),
        m.Fix("Charge it", command="sudo charge --red-hat", needs=("root",), verify="charge --status", on=("rhel",)),
    ),
    references=("https://example.org/battery",),
)
EXPLANATION = """The battery has power.

What it means
A battery that is flat
gives none.

How it is judged
By its voltage.

Known exceptions
None.

References
https://example.org/voltage"""
CHECKS = {
    check.id: check
    for check in (
        m.Check(lambda facts: (), lambda facts: "", id="pressure", area="limits", explanation="The tyres are hard."),
        m.Check(
            lambda facts: (),
            lambda facts: "",
            problems=(PROBLEM,),
            needs=("pressure",),
            level="full",
            id="battery",
            area="machine",
            explanation=EXPLANATION,
        ),
    )
}
TAKEN = m.Snapshot(SNAPSHOT_SCHEMA, "9.8.7", "2025-01-31T03:04:05Z", {"file:/x": m.Reply("ok", "y")}, {"gpus": 4})


class Doctor:
    """Stands for the machine and the judge; remembers what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.report: m.Report = REPORT
        self.asked: list[tuple[Any, ...]] = []
        self.judged: list[m.Snapshot] = []
        monkeypatch.setattr("gpudoctor.collect.collect", self.collect)
        monkeypatch.setattr(doctor, "judge", self.judge)

    def collect(self, where: Any, seconds: float, expected: dict[str, int], progress: Callable[..., None]) -> m.Snapshot:
        self.asked.append((where.path, seconds, expected))
        progress(("nvml", "cuda"))
        return replace(TAKEN, expected=expected)

    def judge(self, taken: m.Snapshot, checks: dict[str, m.Check]) -> m.Report:
        self.judged.append(taken)
        return self.report


def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog holds CHECKS, whatever real ones there are."""
    monkeypatch.setattr(catalog, "checks", lambda: CHECKS)
    monkeypatch.setattr(catalog, "ids", lambda: list(CHECKS))
    monkeypatch.setattr(catalog, "with_needs", lambda names: doctor.select(CHECKS, "full", names))


def run(*args: str, input: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, args, input=input)


def python(*args: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """A real process, for what CliRunner has none of: descriptors, pipes, imports."""
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, env=environment(), timeout=HOPELESS_SECONDS, **settings
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(gpudoctor.__file__).parent.parent)}


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*args: Any, **settings: Any) -> None:
        raise error

    return fail
