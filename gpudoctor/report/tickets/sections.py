"""The sections that tickets are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpudoctor import quoting
from gpudoctor.model import Report, Snapshot
from gpudoctor.report import findings, heading, markdown, words

MOST_FINDINGS = 3
DIAGNOSIS = "What gpudoctor says of this machine"


@dataclass(frozen=True)
class Section:
    """may_move: into the attachment, where the ticket would be too long."""

    title: str
    body: str
    may_move: bool = False


def to_fill_in(title: str, hint: str) -> Section:
    """What only the person who writes can know."""
    return Section(title, f"<!-- {hint} -->\n")


def diagnosis(report: Report) -> Section:
    """The verdict, and the first findings with the lines that gpudoctor would type."""
    groups = findings.groups(report.diagnosis)
    lines = [markdown.text(words.headline(report)), ""]
    for group in groups[:MOST_FINDINGS]:
        first = group[0]
        seen = "; ".join(dict.fromkeys(findings.seen(entry) for entry in group))
        lines += [f"- **{markdown.text(first.title)}**: {markdown.text(seen)} {markdown.text(findings.doubt(first))}".rstrip()]
        fixes = findings.fixes(group)
        lines += [f"  - fix: {markdown.code(fixes[0].command)}"] if fixes and fixes[0].command else []
    if more := len(groups) - MOST_FINDINGS:
        lines += [f"- and {more} more: see the whole report"] if more > 0 else []
    lines += ["", markdown.text(report.coverage.sentence)]
    return Section(DIAGNOSIS, "\n".join(lines) + "\n")


def whole(report: Report) -> Section:
    return Section("The whole report", details("gpudoctor check", markdown.render(report)), may_move=True)


def made_by(report: Report, project: str) -> Section:
    again = f"gpudoctor report --for {project}"
    said = f"{report.schema}, gpudoctor {heading.version(report)}, {report.target.get('taken', 'time not known')}"
    return Section("How this was made", f"{markdown.code(again)} ({markdown.text(said)})\n")


def quoted(title: str, taken: Snapshot | None, name: str) -> Section:
    return Section(title, quotation(taken, name), may_move=True)


def quotation(taken: Snapshot | None, name: str) -> str:
    """The unchanged words of another tool, folded; or why there are none, and what to run."""
    said = quoting.said(taken.replies, name) if taken else ""
    if said:
        return details(f"The output of {quoting.shown(name)}", fenced(said))
    return f"{_why(taken, name)}\n"


def _why(taken: Snapshot | None, name: str) -> str:
    command = markdown.code(quoting.shown(name))
    replies = taken.replies if taken else {}
    reply = replies.get(quoting.PREFIX + name)
    if reply is None:
        return f"Not asked when this was saved. Please paste the output of {command}."
    if reply.status != "ok":
        return f"No output of {command}: {markdown.text(reply.detail)}."
    code = reply.value.get("code") if isinstance(reply.value, dict) else None
    said = f"{command} printed nothing (exit code {markdown.text(str(code))})"
    return said + (f": {markdown.text(failure)}" if (failure := quoting.failed(replies, name)) else ".")


def details(summary: str, body: str) -> str:
    return f"<details>\n<summary>{markdown.text(summary)}</summary>\n\n{body}\n</details>\n"


def fenced(text: str, language: str = "text") -> str:
    """Lines as they are: in a fence longer than any in them nothing calls anybody."""
    ticks = markdown.fence(text, 3)
    return "\n".join([ticks + language, *map(words.plain, text.splitlines()), ticks])


def table(rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {markdown.text(name)} | {markdown.text(value) or 'not known'} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---|", *lines]) + "\n"


def listed(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- {name}: {markdown.text(value) or 'not known'}" for name, value in rows) + "\n"
