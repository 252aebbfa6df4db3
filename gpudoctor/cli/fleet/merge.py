"""`gpudoctor fleet merge`."""

from __future__ import annotations

from typing import Any

import click

from gpudoctor.cli.fleet import COMMANDS, delivering
from gpudoctor.cli.paths import NAME

_EPILOG = """\
\b
Examples:
  gpudoctor fleet merge day1                    all files in a folder
  gpudoctor fleet merge *.json -o fleet.html -o fleet.json
  gpudoctor fleet merge day1 -o day1.html --pages day1-pages
  gpudoctor fleet merge day1 -w node[001-128]   report nodes without a file

\b
A file is a snapshot (check --save), a JSON or HTML report, or a bundle. It is
named after its node: node017.json.

\b
Exit code: 0 nothing at or above --fail-on, 1 problems found, 2 wrong usage,
3 no node could be judged.
"""


@click.command(help=COMMANDS["merge"], epilog=_EPILOG)
@click.argument("paths", metavar="FILE|DIR…", type=NAME, nargs=-1, required=True)
@click.option("-w", "--nodes", metavar="NODES", multiple=True, help="The nodes that should have a file, such as node[001-128].")
@delivering.shared
@click.pass_context
def command(context: click.Context, /, paths: tuple[str, ...], nodes: tuple[str, ...], **given: Any) -> None:
    from gpudoctor.cli import output
    from gpudoctor.fleet import merging, nodesets

    delivery = delivering.Delivery.chosen(given)
    expected = nodesets.parsed(nodes) if nodes else ()
    redactor = delivery.redactor
    with output.progress(delivering.LOG_SECONDS) as tell:
        fleet = merging.merged(paths, expected, redactor.node if redactor else None, tell)
    files = merging.files(paths) if delivery.pages else {}
    code = delivering.deliver(fleet, delivery, files, redactor)
    if redactor:
        redactor.remember()
    context.exit(code)
