"""`gpudoctor fleet diff`."""

from __future__ import annotations

from pathlib import Path

import click

from gpudoctor.cli import options
from gpudoctor.cli.fleet import COMMANDS
from gpudoctor.cli.paths import NAME

_EPILOG = """\
\b
Examples:
  gpudoctor fleet diff day1 day2              two folders of fleet check --save
  gpudoctor fleet diff monday.json today.json

\b
OLD and NEW are folders of snapshots, or the JSON reports of fleet check or
fleet merge.

\b
Exit code: 0 nothing changed, 1 something changed, 2 wrong usage.
"""


@click.command(help=COMMANDS["diff"], epilog=_EPILOG)
@click.argument("old", metavar="OLD", type=NAME)
@click.argument("new", metavar="NEW", type=NAME)
@options.text_or_json
@options.output()
@options.verbose("Show all changes.")
@click.pass_context
def command(context: click.Context, /, old: str, new: str, form: str | None, destination: Path | None, verbose: bool) -> None:
    from gpudoctor.cli import output
    from gpudoctor.fleet import comparing, merging
    from gpudoctor.report.fleet import compared

    form = output.prepared(form, destination)
    with output.progress() as tell:
        one, other = (merging.opened(path, tell) for path in (old, new))
    comparison = comparing.compared(one, other)
    if form == "json":
        text = compared.as_json(comparison)
    else:
        text = compared.render(comparison, *output.look(destination), verbose=verbose)
    output.deliver(text, destination)
    context.exit(0 if comparison.is_same else 1)
