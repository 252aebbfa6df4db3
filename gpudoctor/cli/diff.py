"""`gpudoctor diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, options, sharing
from gpudoctor.cli.paths import NAME

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.cli.sharing import Sharing

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
    from gpudoctor.report import compared

    form = form or output.text_or_json(destination)
    if destination:
        output.must_be_writable(destination)
    first, second = (checkup.load(path, "full") for path in (one, other))  # so that different levels do not count as a difference
    left, right = _alike(first, second, how)
    if left.redaction:
        one, other = _apart(one, other)  # a folder would only show tokens
    a, b = left.opened(one), right.opened(other)
    comparison = comparing.compare(a, b)
    if form == "json":
        text = compared.as_json(a, b, comparison)
    else:
        text = compared.render(a, b, comparison, *output.look(destination), verbose=verbose)
    if not destination:
        sharing.tell_shown(left, "A  ")
        sharing.tell_shown(right, "B  ")
    output.deliver(right.sweep(text), destination, right if destination else None)
    context.exit(0 if comparison.is_same else 1)


def _alike(first: Checkup, second: Checkup, how: Sharing) -> tuple[Checkup, Checkup]:
    """Both as they are, or both with the same tokens if one has tokens; names that this machine knows are put back first."""
    from gpudoctor import checkup
    from gpudoctor.files import opening

    is_redacted = opening.is_redacted(first.snapshot) or opening.is_redacted(second.snapshot)
    if how.no_redact or not (is_redacted or how.is_for_all()):
        return first, second
    left = sharing.leaving(checkup.restored(first), how)
    tokens = left.redaction.tokens.private() if left.redaction else None  # equal values get equal tokens
    return left, sharing.leaving(checkup.restored(second), how, tokens=tokens)


def _apart(one: str, other: str) -> tuple[str, str]:
    """The names of the files, with as many folders as it takes to tell them apart."""
    first, second = Path(one).parts, Path(other).parts
    for number in range(1, max(len(first), len(second))):
        if first[-number:] != second[-number:]:
            return str(Path(*first[-number:])), str(Path(*second[-number:]))
    return one, other
