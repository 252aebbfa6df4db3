"""`gpudoctor schema`."""

from __future__ import annotations

from pathlib import Path

import click

from gpudoctor.cli import COMMANDS, options

PUBLISHED = ("report", "diff", "bundle", "expectation", "fleet", "collective")


@click.command(help=COMMANDS["schema"])
@click.argument("of", metavar="[report|diff|bundle|expectation|fleet|collective]", type=click.Choice(PUBLISHED), default="report")
@options.output()
def command(of: str, destination: Path | None) -> None:
    from gpudoctor.cli import output
    from gpudoctor.report import schema

    if destination:
        output.must_be_writable(destination)
    output.deliver(schema.render(of), destination)
