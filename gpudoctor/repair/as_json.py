"""The steps of `gpudoctor fix` for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpudoctor.model import Report
from gpudoctor.repair import script
from gpudoctor.repair.plan import Step

SCHEMA = "gpudoctor.fix/1"


def render(steps: Iterable[Step], notes: Sequence[str], report: Report) -> str:
    made = {
        "schema": SCHEMA,
        "version": report.version,
        "status": report.status.value,
        "notes": list(notes),
        "steps": [_step(step) for step in steps],
    }
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"


def _step(step: Step) -> dict[str, Any]:
    return {**_fix(step), "alternatives": [_fix(other) for other in step.alternatives]}


def _fix(step: Step) -> dict[str, Any]:
    """runs: whether the script runs it; else a person has to."""
    return {
        "problem": step.problem,
        "problem_title": step.title,
        "title": step.fix.title,
        "command": step.command,
        "verify": step.fix.verify,
        "undo": step.fix.undo,
        "risk": step.risk,
        "needs": list(step.needs),
        "reboots": step.reboots,
        "runs": script.runs(step),
    }
