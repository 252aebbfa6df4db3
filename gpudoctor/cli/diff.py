"""`gpudoctor diff`: two machines, or one on two days."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.paths import NAME

if TYPE_CHECKING:
    from gpudoctor.model import Report, Snapshot

_EPILOG = """\
\b
Examples:
  gpudoctor diff yesterday.json today.json     why is it worse today?
  gpudoctor diff good-node.json bad-node.json  why is this one worse?
\b
A and B are what gpudoctor wrote: snapshots (check --save), reports as JSON or
HTML, bundles. Of two snapshots every answer is compared, and tried: with the
better machine's answer in its place, is the problem gone?
\b
Exit code: 0 nothing differs, 1 something does, 2 wrong usage.
"""


@click.command(help=COMMANDS["diff"], epilog=_EPILOG)
@click.argument("one", metavar="A", type=NAME)
@click.argument("other", metavar="B", type=NAME)
@options.text_or_json
@options.output()
@options.verbose("Show all that differs.")
@options.sharing
@click.pass_context
def command(
    context: click.Context, /, one: str, other: str, form: str | None, destination: Path | None, verbose: bool, **given: Any
) -> None:
    how = sharing.chosen(given)
    from gpudoctor import comparing
    from gpudoctor.cli import output
    from gpudoctor.files import opening
    from gpudoctor.report import compared, terminal

    form = form or sharing.text_or_json(destination)
    if destination:
        output.must_be_writable(destination)
    first, second = _read(one), _read(other)
    stays = sharing.goes_to_terminal(destination) and not (opening.is_redacted(first) or opening.is_redacted(second))
    if not (stays or how.no_redact):
        one, other = Path(one).name, Path(other).name  # of a folder nothing but tokens would be left
    a, left = sharing.leaving(first, one, how, stays, "A  ")
    b, right = sharing.leaving(second, other, how, stays, "B  ", beside=left)  # what is one value stays one
    comparison = comparing.compare(a, b)
    if form == "json":
        text = compared.as_json(a, b, comparison)
    else:
        look = (80, False) if destination else terminal.look()
        text = compared.render(a, b, comparison, *look, verbose=verbose)
    text = right.sweep(text)
    if destination:
        output.write(destination, text.encode("utf-8", "replace"))
    else:
        output.show(text)
    context.exit(0 if comparison.is_same else 1)


def _read(path: str) -> Report | Snapshot:
    """Both are judged by every check: what only one level looks at is no difference."""
    from gpudoctor.files import opening
    from gpudoctor.model import Report

    found = opening.read(path)
    return found if isinstance(found, Report) else opening.at(found, "full")
