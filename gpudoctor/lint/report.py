"""The faults found, as text (like a compiler's messages) and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator

from gpudoctor.lint.files import Linted
from gpudoctor.lint.model import STATUSES, Fault, Rule
from gpudoctor.plain import plain

_WIDEST = 100


def as_json(linted: Iterable[Linted]) -> str:
    rows = [
        {
            "file": file.name,
            "line": fault.line,
            "rule": fault.rule.id,
            "status": fault.status,
            "message": fault.message,
            "why": fault.rule.why,
            "fix": fault.write,
            "reference": fault.rule.references[0],
        }
        for file in linted
        for fault in file.faults
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def as_text(linted: list[Linted], width: int = 80, paint: bool = False) -> str:
    lines: list[str] = []
    for file in linted:
        for fault in file.faults:
            lines += [*_fault(file.name, fault, min(width, _WIDEST), paint), ""]
    return "".join(f"{line}\n" for line in [*lines, summary(linted)])


def summary(linted: list[Linted]) -> str:
    files = f"{len(linted)} file" + "s" * (len(linted) != 1)
    count = Counter(fault.status for file in linted for fault in file.faults)
    if not count:
        return f"{files}: no GPU faults found"
    return f"{files}: {', '.join(f'{count[status]} {status}' for status in STATUSES if count[status])}"


def rules_text(rules: Iterable[Rule], width: int = 80) -> str:
    """Every rule with its reason and references."""
    lines: list[str] = []
    for rule in rules:
        lines += [f"{rule.id} ({rule.status})", *_wrapped(rule.title, width), *_wrapped(rule.why, width)]
        lines += [*_written(rule.write), *(f"  {reference}" for reference in rule.references), ""]
    return "".join(f"{line}\n" for line in lines)


def rules_json(rules: Iterable[Rule]) -> str:
    rows = [
        {
            "rule": rule.id,
            "status": rule.status,
            "title": rule.title,
            "why": rule.why,
            "fix": rule.write,
            "references": rule.references,
        }
        for rule in rules
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"


def _fault(name: str, fault: Fault, width: int, paint: bool) -> Iterator[str]:
    colour = {"fail": "31", "warn": "33", "info": "36"}[fault.status]
    status = f"\x1b[{colour}m{fault.status}\x1b[0m" if paint else fault.status
    yield f"{plain(name)}:{fault.line}: {status}: {fault.rule.title} [{fault.rule.id}]"
    yield from _wrapped(plain(fault.message), width)
    yield from _wrapped(fault.rule.why, width)
    yield from _written(fault.write)


def _written(write: str) -> Iterator[str]:
    """Lines to paste are never wrapped; those of YAML keep their indentation."""
    lines = plain(write).splitlines()
    if len(lines) > 1 or lines[0].startswith(" "):
        yield "  Write:"
        yield from lines
    else:
        yield f"  Write: {lines[0]}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
