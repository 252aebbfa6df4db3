"""What `gpudoctor explain` prints about a check or a problem of the catalog."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from gpudoctor import catalog, filling, placeholders
from gpudoctor.fixes import engines
from gpudoctor.model import Check, Fix, Problem
from gpudoctor.report import words

_WIDEST = 100
_HEADINGS = ("What it means", "How it is judged", "Known exceptions", "References")


@dataclass(frozen=True)
class Here:
    """What is known of this machine. platform: the tags of `Fix.on`; empty to show the fixes of all. python: its Python."""

    platform: tuple[str, ...] = ()
    python: str = "python"

    def fixes(self, problem: Problem) -> list[Fix]:
        """The fixes as they can be pasted here; those of other platforms only where none is for this one."""
        ways = [fix.filled({"python": self.python}).shown for fix in engines.of(problem.fixes, "docker")]
        titles = {fix.title for fix in ways if fix.suits(self.platform)}
        return [fix for fix in ways if not self.platform or fix.title not in titles or fix.suits(self.platform)]


ANYWHERE = Here()


def of_check(check: Check, here: Here = ANYWHERE) -> Iterator[str]:
    """The check's explanation, then every problem that it can find."""
    yield f"{check.id}: a check in the area {check.area}, level {check.level}"
    yield ""
    yield from _prose(check.explanation)
    yield ""
    yield f"Needs: {', '.join(check.needs) or 'no other check'}"
    for problem in catalog.found_by(check):
        yield ""
        yield f"Problem {problem.id}"
        yield from _problem(problem, here)


def of_problem(finders: Sequence[Check], problem: Problem, here: Here = ANYWHERE) -> Iterator[str]:
    """finders: the checks that find it. If there is only one, its way of judging is included."""
    names = ", ".join(check.id for check in finders)
    found = f"by the check {names}" if len(finders) == 1 else f"by these checks: {names}"
    yield from _wrapped(f"{problem.id}: a problem found {found}")
    yield ""
    yield from _problem(problem, here)
    yield ""
    yield f"For this machine: gpudoctor fix {problem.id}"
    if len(finders) == 1:
        yield ""
        yield "How it is judged"
        yield from _prose(_section(finders[0].explanation, "How it is judged"))
    if problem.references:
        yield ""
        yield "References"
        yield from problem.references


def _problem(problem: Problem, here: Here) -> Iterator[str]:
    yield from _wrapped(problem.title)
    yield f"  {words.to_do(problem)}"
    yield from _wrapped(problem.why, "  ")
    ways = here.fixes(problem)
    for (title, terms, verify), fixes in groupby(ways, lambda fix: (fix.title, words.terms(fix), fix.verify)):
        yield ""
        yield from _wrapped(f"Fix: {title}" + (f" ({terms})" if terms else ""), "  ")
        for fix in fixes:
            yield from _paste(fix.command, f"on {', '.join(fix.on)}:" if fix.on else "")
            yield from _paste(fix.undo, "Undo:")
        yield from _paste(verify, "Check that it worked:")
    values = list(placeholders.explained(name for fix in ways for text in fix.lines for name in filling.names(text)))
    yield from ["", *(f"  {line}" for line in values)] if values else []


def _paste(commands: str, before: str) -> Iterator[str]:
    if commands:
        yield from [f"  {before}"] if before else []
        yield from (f"      {line}" for line in commands.splitlines())


def _section(explanation: str, heading: str) -> str:
    others = "|".join(map(re.escape, _HEADINGS))
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=\n+(?:{others})\n|\Z)", explanation, re.DOTALL | re.MULTILINE)
    return found[1] if found else explanation


def _prose(text: str) -> Iterator[str]:
    """Paragraphs and bullets in the terminal's width; headings, links and indented lines stay as they are."""
    paragraph: list[str] = []
    for line in text.splitlines():
        is_prose = line and line not in _HEADINGS and not line.startswith((" ", "- ", "https://"))
        if is_prose or (line.startswith("  ") and paragraph and paragraph[0].startswith("- ")):
            paragraph.append(line.strip())
            continue
        yield from _flowed(paragraph)
        paragraph = [line] if line.startswith("- ") else []
        yield from [] if paragraph else [line]
    yield from _flowed(paragraph)


def _flowed(lines: Sequence[str]) -> list[str]:
    return _wrapped(" ".join(lines), hanging="  " if lines and lines[0].startswith("- ") else "")


def _wrapped(text: str, indent: str = "", hanging: str = "") -> list[str]:
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  " if indent else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
