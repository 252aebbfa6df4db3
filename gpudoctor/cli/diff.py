"""`gpudoctor diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.paths import NAME

_EPILOG = """\
\b
Examples:
  gpudoctor diff yesterday.json today.json     why is it worse today?
  gpudoctor diff good-node.json bad-node.json  why is this node worse?
\b
A and B are files from gpudoctor: snapshots (check --save), JSON or HTML
reports, or bundles. For two snapshots every reply is compared, and gpudoctor
tests which difference explains the problem.
\b
Exit code: 0 no meaningful difference, 1 differences found, 2 wrong usage.
"""


@click.command(help=COMMANDS["diff"], epilog=_EPILOG)
@click.argument("one", metavar="A", type=NAME)
@click.argument("other", metavar="B", type=NAME)
@options.text_or_json
@options.output()
@options.verbose("Show all differences.")
@options.sharing
@click.pass_context
def command(
    context: click.Context, /, one: str, other: str, form: str | None, destination: Path | None, verbose: bool, **given: Any
) -> None:
    how = sharing.chosen(given)
    from gpudoctor import checkup, comparing
    from gpudoctor.cli import output
    from gpudoctor.files import opening
    from gpudoctor.report import compared

    form = form or output.text_or_json(destination)
    if destination:
        output.must_be_writable(destination)
    first, second = (checkup.load(path, "full") for path in (one, other))  # so that different levels do not count as a difference
    is_redacted = opening.is_redacted(first.snapshot) or opening.is_redacted(second.snapshot)
    stays = sharing.goes_to_terminal(destination) and not is_redacted
    if not (stays or how.no_redact):
        one, other = Path(one).name, Path(other).name  # a folder would only show tokens
    left = sharing.leaving(first, how, stays, "A  ")
    tokens = left.redaction.tokens.private() if left.redaction else None  # equal values get equal tokens
    right = sharing.leaving(second, how, stays, "B  ", tokens=tokens)
    a, b = left.opened(one), right.opened(other)
    comparison = comparing.compare(a, b)
    if form == "json":
        text = compared.as_json(a, b, comparison)
    else:
        text = compared.render(a, b, comparison, *output.look(destination), verbose=verbose)
    output.deliver(right.sweep(text), destination)
    context.exit(0 if comparison.is_same else 1)
