"""The sections of tickets."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudoctor import quoting
from gpudoctor.model import Report, Snapshot
from gpudoctor.plain import plain
from gpudoctor.report import findings, heading, markdown, words

MOST_FINDINGS = 3
DIAGNOSIS = "Diagnosis by gpudoctor"


@dataclass(frozen=True)
class Part:
    """text: the part between `before` and `after` that is shortened by `left_out` characters if the ticket is too long.

    file: of the bundle, which holds all of it. is_own: gpudoctor's own report, which is left out as a whole, before all others.
    """

    text: str
    before: str = ""
    after: str = ""
    file: str = "report.json"
    is_own: bool = False
    left_out: int = 0


@dataclass(frozen=True)
class Section:
    title: str
    parts: tuple[Part, ...]


def of(title: str, *parts: str | Part) -> Section:
    return Section(title, tuple(part if isinstance(part, Part) else Part(part) for part in parts))


def to_fill_in(title: str, hint: str) -> Section:
    """A section that only the reporter can fill in."""
    return of(title, f"<!-- {hint} -->\n")


def diagnosis(report: Report) -> Section:
    """The verdict and the first findings with their fixes."""
    groups = findings.groups(report.diagnosis)
    lines = [markdown.text(words.headline(report)), ""]
    for group in groups[:MOST_FINDINGS]:
        first = group[0]
        seen = "; ".join(findings.seen_by_all(group))
        lines += [f"- **{markdown.text(first.title)}**: {markdown.text(seen)} {markdown.text(findings.doubt(first))}".rstrip()]
        fixes = findings.fixes(group)
        lines += [f"  - fix: {markdown.code(fixes[0].command)}"] if fixes and fixes[0].command else []
    if more := len(groups) - MOST_FINDINGS:
        lines += [f"- and {more} more: see the full report"] if more > 0 else []
    lines += [""] * bool(groups) + [markdown.text(report.coverage.sentence)]
    return of(DIAGNOSIS, Part("\n".join(lines) + "\n", file="report.md"))


def whole(report: Report) -> Section:
    return of("Full report", folded("<code>gpudoctor check</code>", markdown.render(report), file="report.md", is_own=True))


def made_by(report: Report, command: str) -> Section:
    said = f"{report.schema}, gpudoctor {heading.version(report)}, {report.target.get('taken', 'time unknown')}"
    return of("Made by", f"{markdown.code(command)} ({markdown.text(said)})\n")


def quoted(title: str, taken: Snapshot | None, name: str) -> Section:
    return of(title, quotation(taken, name))


def quotation(taken: Snapshot | None, name: str) -> Part:
    """The unchanged output of another tool, folded; or why there is none, and what to run."""
    said = quoting.said(taken.replies, name) if taken else ""
    if said:
        return fenced(f"The output of <code>{html.escape(quoting.shown(name))}</code>", said, f"raw/machine/…-quoted-{name}.txt")
    return Part(f"{_why(taken, name)}\n")


def _why(taken: Snapshot | None, name: str) -> str:
    command = markdown.code(quoting.shown(name))
    replies = taken.replies if taken else {}
    reply = replies.get(quoting.PREFIX + name)
    if reply is None:
        return f"Not recorded in this file. Please paste the output of {command}."
    if reply.status != "ok":
        return f"No output of {command}: {markdown.text(reply.detail)}."
    code = reply.value.get("code") if isinstance(reply.value, dict) else None
    said = f"{command} printed nothing (exit code {markdown.text(str(code))})"
    return said + (f": {markdown.text(failure)}" if (failure := quoting.failed(replies, name)) else ".")


def folded(summary: str, text: str, *, file: str, is_own: bool = False) -> Part:
    """summary: HTML; GitHub renders no Markdown in it."""
    return Part(f"{text}\n", f"<details>\n<summary>{summary}</summary>\n\n", "</details>\n", file, is_own)


def fenced(summary: str, said: str, file: str) -> Part:
    """Unchanged lines, folded, in a fence longer than any in them, so that mentions stay inactive."""
    ticks = markdown.fence(said, 3)
    part = folded(summary, "\n".join(map(plain, said.splitlines())), file=file)
    return replace(part, before=f"{part.before}{ticks}text\n", after=f"{ticks}\n\n{part.after}")


def table(rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {markdown.text(name)} | {markdown.text(value) or 'unknown'} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---|", *lines]) + "\n"


def listed(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- {name}: {markdown.text(value) or 'unknown'}" for name, value in rows) + "\n"
