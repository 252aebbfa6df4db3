"""The pages of the site about practices, made from the table that `gpudoctor explain` reads."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from gpudoctor.knowledge import practices
from gpudoctor.knowledge.practices import Practice
from gpudoctor.report.markdown import fence
from gpudoctor.report.practice import EXAMPLES


def pages() -> dict[str, str]:
    """Path in the site -> Markdown."""
    made = {f"practices/{id}.md": _text(_practice(practice)) for id, practice in practices.practices().items()}
    return {"practices/index.md": _text(_index()), **made}


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _index() -> Iterator[str]:
    yield "# Practices"
    yield ""
    yield "What keeps a GPU busy. `gpudoctor list --practices` prints this list, `gpudoctor explain NAME` a page of it."
    yield ""
    for practice in practices.practices().values():
        yield f"- [{practice.id}]({practice.id}.md): {_escaped(practice.title)}"


def _practice(practice: Practice) -> Iterator[str]:
    yield f"# {_escaped(practice.title)}"
    yield ""
    yield f"`gpudoctor explain {practice.id}`" + (f"; also: {', '.join(practice.also)}" if practice.also else "")
    yield ""
    yield _escaped(practice.what)
    yield from ("", "## When it matters", "", _escaped(practice.matters), "", "## How to see it", "")
    for look in practice.see:
        yield from (f"{_escaped(look.what)}:", "")
        yield from _quoted("sh", look.command)
    yield from ("## What to do", "")
    for step in practice.do:
        yield from (f"{_escaped(step.what)}{':' if step.code else ''}", "")
        yield from _quoted("", step.code) if step.code else ()
    yield from ("## More", "")
    yield f"- Example: [{practice.example}.py]({EXAMPLES}/{practice.example}.py)"
    yield from (f"- Practice: [{name}]({name}.md)" for name in practice.related)
    yield from (f"- Problem: [{name}](../problems/{name}.md)" for name in practice.problems)
    yield from (f"- <{reference}>" for reference in practices.table().references(practice))


def _quoted(language: str, text: str) -> Iterator[str]:
    ticks = fence(text, 3)
    yield from (f"{ticks}{language}", *text.splitlines(), ticks, "")


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]#])", r"\\\1", html.escape(text, quote=False))
