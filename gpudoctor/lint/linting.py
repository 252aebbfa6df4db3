"""Text of a known kind -> the faults in it, without those that a comment ignores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from gpudoctor.lint import catalog, compose, devcontainer, dockerfile, scripts
from gpudoctor.lint.model import STATUSES, Fault

KINDS = {
    "dockerfile": "dockerfile",
    "compose": "compose",
    "devcontainer": "devcontainer",
    "script": "script",
    "makefile": "script",
    "markdown": "script",
}  # of file -> the name of the rules' function for it
_IGNORE = re.compile(r"(?:#|//)\s*gpudoctor:\s*ignore=([\w,\- ]+)")
Parsed = dockerfile.Dockerfile | compose.Compose | devcontainer.Devcontainer | scripts.Script


def lint(kind: str, parsed: Parsed, text: str) -> list[Fault]:
    """Faults in the order of the lines."""
    found: dict[tuple[str, int], Fault] = {}
    for module in catalog.modules():
        look: Callable[[Any], Iterable[Fault]] | None = getattr(module, KINDS[kind], None)
        for fault in look(parsed) if look else ():
            found.setdefault((fault.rule.id, fault.line), fault)
    ignored = _ignored(text, _starts(parsed))
    kept = [fault for fault in found.values() if fault.rule.id not in ignored.get(fault.line, ())]
    return sorted(kept, key=lambda fault: (fault.line, STATUSES.index(fault.status), fault.rule.id))


def _starts(parsed: Parsed) -> dict[int, int]:
    """Line -> first line of the instruction that it belongs to: a comment above the whole instruction counts too."""
    if isinstance(parsed, scripts.Script):
        return parsed.starts
    if not isinstance(parsed, dockerfile.Dockerfile):
        return {}
    steps = [step.instruction for stage in parsed.stages for step in stage.steps]
    return {line: step.line for step in steps for line in range(step.line, step.end + 1)}


def _ignored(text: str, starts: dict[int, int]) -> dict[int, set[str]]:
    """Line -> the rules that a comment in it, above it or above its instruction disables."""
    if "gpudoctor:" not in text:
        return {}
    lines = ["", *text.splitlines()]
    comments = {
        number: set(re.split(r"[,\s]+", found[1])) for number, line in enumerate(lines) if (found := _IGNORE.search(line))
    }
    alone = {number for number in comments if lines[number].lstrip().startswith(("#", "//"))}
    ignored: dict[int, set[str]] = {}
    for number in range(1, len(lines)):
        above = alone & {number - 1, starts.get(number, number) - 1}
        ignored[number] = set().union(*(comments.get(place, set()) for place in {number, *above}))
    return ignored
