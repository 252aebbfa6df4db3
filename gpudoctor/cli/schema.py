"""`gpudoctor schema`."""

from __future__ import annotations

import click

from gpudoctor.cli import COMMANDS

PUBLISHED = ("report", "diff", "bundle")


@click.command(help=COMMANDS["schema"])
@click.argument("of", metavar="[report|diff|bundle]", type=click.Choice(PUBLISHED), default="report")
def command(of: str) -> None:
    from gpudoctor.cli import output
    from gpudoctor.report import schema

    output.show(schema.render(of))
