"""What to type after `gpudoctor check`, as far as it makes sense for what was examined."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.model import Report
from gpudoctor.report import without_gpu

if TYPE_CHECKING:
    from gpudoctor.cli.delivering import Form
    from gpudoctor.wanted import Wanted

_VERIFIED = ("json", "html")  # formats that gpudoctor verify reads


def lines(report: Report, wanted: Wanted, logs: Sequence[str], how: Form) -> str:
    """At most two lines; "" if nothing was found, or nothing that these commands could do anything about."""
    if not report.diagnosis or without_gpu.is_all(report):
        return ""
    if how.destination:
        return _after_writing(wanted, how.destination, how.name)
    steps = list(_steps(report, wanted, logs)) if how.name == "text" and not wanted.inside else []
    width = max((len(command) for command, _ in steps), default=0)
    starts = ("\nNext: ", *["      "] * len(steps))
    return "".join(f"{start}{command:<{width}}  {why}\n" for start, (command, why) in zip(starts, steps, strict=False))


def _after_writing(wanted: Wanted, destination: Path, form: str) -> str:
    if form not in _VERIFIED:
        return ""
    return f"After the fixes: {shlex.join(['gpudoctor', 'verify', *_python(wanted), str(destination)])}\n"


def _steps(report: Report, wanted: Wanted, logs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Command and what it does. `report` takes no logs, and standard input cannot be read again."""
    if any(fix.command for entry in report.diagnosis for fix in entry.fixes) and "-" not in logs:
        words = [word for path in logs for word in ("--log", path)]
        yield shlex.join(["gpudoctor", "fix", *_python(wanted), *words]), "print all fixes as a script"
    if not logs:
        level = ["--level", wanted.level] if wanted.level else []
        yield shlex.join(["gpudoctor", "report", *level, *_python(wanted), "-o", "report.html"]), "write a page to share"


def _python(wanted: Wanted) -> list[str]:
    return ["--python", wanted.python] if wanted.python else []
