"""What `gpudoctor explain` tells programs about a check, a problem, a practice or a code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpudoctor import catalog, codes
from gpudoctor.codes import Code
from gpudoctor.fixes import engines
from gpudoctor.knowledge import practices
from gpudoctor.knowledge.practices import Practice
from gpudoctor.model import Check, Fix, Problem

SCHEMA = "gpudoctor.explanation/1"


def render(entries: Iterable[dict[str, Any]]) -> str:
    made = {"schema": SCHEMA, "entries": list(entries)}
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"


def of_check(check: Check) -> dict[str, Any]:
    return {
        "kind": "check",
        "id": check.id,
        "area": check.area,
        "level": check.level,
        "needs": list(check.needs),
        "explanation": check.explanation,
        "problems": [of_problem([check], problem) for problem in catalog.found_by(check)],
    }


def of_problem(finders: Sequence[Check], problem: Problem) -> dict[str, Any]:
    return {
        "kind": "problem",
        "id": problem.id,
        "title": problem.title,
        "why": problem.why,
        "action": problem.action.value,
        "status": problem.status.value,
        "checks": [check.id for check in finders],
        "fixes": [_fix(fix.shown) for fix in engines.of(problem.fixes, "docker")],
        "references": list(problem.references),
    }


def _fix(fix: Fix) -> dict[str, Any]:
    """on: the platforms that it is for; empty for all."""
    return {
        "title": fix.title,
        "command": fix.command,
        "verify": fix.verify,
        "undo": fix.undo,
        "risk": fix.risk,
        "needs": list(fix.needs),
        "on": list(fix.on),
    }


def of_practice(practice: Practice) -> dict[str, Any]:
    return {
        "kind": "practice",
        "id": practice.id,
        "also": list(practice.also),
        "title": practice.title,
        "what": practice.what,
        "matters": practice.matters,
        "see": [{"what": look.what, "command": look.command} for look in practice.see],
        "do": [{"what": step.what, "code": step.code} for step in practice.do],
        "example": practice.example,
        "related": list(practice.related),
        "problems": list(practice.problems),
        "references": list(practices.table().references(practice)),
    }


def of_code(code: Code) -> dict[str, Any]:
    """of: the table that it is in, such as xid or cuda. number: null for a code given by its name."""
    return {"kind": "code", "of": code.kind, "number": code.number, "name": code.name, "text": "\n".join(codes.lines(code))}
