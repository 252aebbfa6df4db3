"""What `gpudoctor explain` prints about a practice."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

from gpudoctor.knowledge import practices
from gpudoctor.knowledge.practices import Practice

_WIDTH = 100
EXAMPLES = "https://github.com/gpudoctor/gpudoctor/blob/main/examples"


def lines(practice: Practice) -> Iterator[str]:
    yield f"{practice.id}: {practice.title}"
    yield ""
    yield from _wrapped(practice.what)
    yield ""
    yield "When it matters"
    yield from _wrapped(practice.matters, "  ")
    yield ""
    yield "How to see it"
    for look in practice.see:
        yield from _wrapped(look.what, "  ")
        yield f"      {look.command}"
    yield ""
    yield "What to do"
    for step in practice.do:
        yield from _wrapped(step.what, "  ")
        yield from (f"      {line}" for line in step.code.splitlines())
    yield ""
    yield "More"
    yield f"  Example: {EXAMPLES}/{practice.example}.py and {practice.example}_mended.py"
    if practice.related:
        yield f"  Practices: {', '.join(practice.related)}"
    if practice.problems:
        yield from _wrapped(f"Problems: {', '.join(practice.problems)}", "  ")
    yield from (f"  {reference}" for reference in practices.table().references(practice))


def _wrapped(text: str, indent: str = "") -> list[str]:
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
