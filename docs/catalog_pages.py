"""The pages of the site that are made from the catalog: one for each check, one for each problem, and two lists."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from gpudoctor import catalog, filling, placeholders
from gpudoctor.knowledge import messages
from gpudoctor.knowledge.messages import Message
from gpudoctor.model import AREAS, Check, Fix, Problem
from gpudoctor.report import words
from gpudoctor.report.explanation import ANYWHERE
from gpudoctor.report.markdown import fence

HEADINGS = ("What it means", "How it is judged", "Known exceptions", "References")
PLATFORMS = {
    "debian": "Debian and Ubuntu",
    "nixos": "NixOS",
    "rhel": "RHEL, Fedora and their kin",
    "suse": "SUSE",
    "arch": "Arch",
    "other": "other distributions",
    "wsl2": "WSL2",
    "container": "inside a container",
    "host": "a machine that is no container",
    "kubernetes": "a pod of Kubernetes",
    "vm": "a virtual machine",
    "physical": "a physical machine",
    "bmc": "a server with a BMC",
    "conda": "a conda environment",
}
LONGEST_MESSAGE = 300  # characters


def pages() -> dict[str, str]:
    """Path in the site -> Markdown."""
    checks, problems = catalog.checks(), catalog.problems()
    made = {f"checks/{id}.md": _text(_check(check)) for id, check in checks.items()}
    for id, (_, problem) in problems.items():
        finders = [check for check in checks.values() if id in {each.id for each in catalog.found_by(check)}]
        made[f"problems/{id}.md"] = _text(_problem(problem, finders))
    lists = {"checks/index.md": _text(_checks(checks.values())), "problems/index.md": _text(_problems(problems.values()))}
    return lists | made


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _check(check: Check) -> Iterator[str]:
    yield f"# {check.id}"
    yield ""
    yield from _prose(check.explanation)
    yield ""
    yield "## Where it stands"
    yield ""
    yield f"- Area: {check.area}"
    yield f"- Level: {check.level}"
    yield f"- Needs: {_linked(check.needs) or 'no other check'}"
    if check.explained_by:
        yield f"- Only says again what these say, where they fail: {_linked(check.explained_by)}"
    if check.workloads:
        yield f"- Measures: {', '.join(check.workloads)}"
    yield f"- Alone: `gpudoctor check --only {check.id}`"
    yield ""
    yield "## What it can find"
    yield ""
    found = catalog.found_by(check)
    yield from (f"- [{_escaped(problem.title)}](../problems/{problem.id}.md)" for problem in found)
    if not found:
        yield "What [messages of programs](../problems/index.md#known-by-their-messages) mean."


def _problem(problem: Problem, finders: list[Check]) -> Iterator[str]:
    yield f"# {_escaped(problem.title)}"
    yield ""
    yield f"`{problem.id}`: {words.to_do(problem)}"
    yield ""
    yield _escaped(problem.why)
    yield ""
    yield from _fixes(problem)
    said = [message for message in messages.explained() if problem.id in (message.problem, *message.causes)]
    if said:
        yield "## Messages"
        yield ""
        yield "What programs say then; `gpudoctor explain` takes the message, or the log in which it stands:"
        yield ""
        yield from _quoted("text", _lines_of(said))
    yield "## More"
    yield ""
    yield f"- Found by: {_linked(check.id for check in finders) or 'messages of programs, which `gpudoctor explain` reads'}"
    yield f"- For the machine at hand: `gpudoctor fix {problem.id}`"
    yield from (f"- <{reference}>" for reference in problem.references)


def _fixes(problem: Problem) -> Iterator[str]:
    if not problem.fixes:
        return
    yield "## How to fix it"
    yield ""
    ways = ANYWHERE.fixes(problem)
    for (title, terms, verify), fixes in groupby(ways, lambda fix: (fix.title, words.terms(fix), fix.verify)):
        yield f"**{_escaped(title)}**" + (f" ({terms})" if terms else "")
        yield ""
        for fix in fixes:
            yield from _commands(fix)
        if verify:
            yield "Check that it worked:"
            yield ""
            yield from _quoted("sh", verify.splitlines())
    left = sorted({name for fix in ways for text in fix.lines for name in filling.names(text)})
    if left:
        yield "`gpudoctor fix` fills in these values from the machine. Without it, set them before you paste, such as"
        yield f"`{left[0]}=…`:"
        yield ""
        yield from (f"- `{name}`: {_escaped(placeholders.meaning(name))}" for name in left)
        yield ""


def _commands(fix: Fix) -> Iterator[str]:
    where = ", ".join(PLATFORMS[name] for name in fix.on)
    if where:
        yield f"On {where}:"
        yield ""
    if fix.command:
        yield from _quoted("sh", fix.command.splitlines())
    if fix.undo:
        yield "To undo it:"
        yield ""
        yield from _quoted("sh", fix.undo.splitlines())


def _lines_of(said: Iterable[Message]) -> Iterator[str]:
    """Of each message the lines of its first sample that decide."""
    for message in said:
        sample = message.samples[0]
        found = message.regex.search(sample)
        if found:
            start = sample.rfind("\n", 0, found.start()) + 1
            end = sample.find("\n", found.end())
            line = sample[start : end if end >= 0 else None]
            yield (line if len(line) <= LONGEST_MESSAGE else line[found.start() - start :]).strip()[:LONGEST_MESSAGE]


def _checks(checks: Iterable[Check]) -> Iterator[str]:
    yield "# Checks"
    yield ""
    yield "`gpudoctor list` prints them with what each needs; `gpudoctor explain ID` prints a page of this list."
    by_area = sorted(checks, key=lambda check: AREAS.index(check.area))
    for area, found in groupby(by_area, lambda check: check.area):
        yield ""
        yield f"## {area}"
        yield ""
        yield from (f"- [{check.id}]({check.id}.md): {_escaped(_first(check.explanation))}" for check in found)


def _problems(problems: Iterable[tuple[Check, Problem]]) -> Iterator[str]:
    yield "# Problems"
    yield ""
    yield "What gpudoctor can find, by the area of the check that finds it."
    told = set(messages.problems())
    found_by_checks = [(check, problem) for check, problem in problems if problem.id not in told]
    for area in AREAS:
        found = [problem for check, problem in found_by_checks if check.area == area]
        if found:
            yield from _section(area, found)
    yield from _section("Known by their messages", messages.problems().values())


def _section(title: str, problems: Iterable[Problem]) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield from (f"- [{_escaped(problem.title)}]({problem.id}.md)" for problem in problems)


def _first(explanation: str) -> str:
    return " ".join(explanation.partition("\n\n")[0].split())


def _linked(checks: Iterable[str]) -> str:
    return ", ".join(f"[{id}](../checks/{id}.md)" for id in checks)


def _prose(explanation: str) -> Iterator[str]:
    """A docstring: its headings, its links and its paragraphs."""
    for line in explanation.splitlines():
        if line in HEADINGS:
            yield from ("", f"## {line}", "")
        elif line.startswith("https://"):
            yield f"- <{line}>" if " " not in line else f"- {_escaped(line)}"
        elif line.startswith(" "):
            yield f"    {line.strip()}"
        else:
            yield _escaped(line)


def _quoted(language: str, lines: Iterable[str]) -> Iterator[str]:
    lines = list(lines)
    ticks = fence("\n".join(lines), 3)
    yield from (f"{ticks}{language}", *lines, ticks, "")


def _escaped(text: str) -> str:
    """As itself in Markdown, whatever signs are in it."""
    return re.sub(r"([\\`*_\[\]#])", r"\\\1", html.escape(text, quote=False))
