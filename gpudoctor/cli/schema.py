"""`gpudoctor schema`."""

from __future__ import annotations

import click

from gpudoctor.cli import COMMANDS


@click.command(help=COMMANDS["schema"])
def command() -> None:
    from gpudoctor.cli import output
    from gpudoctor.report import schema

    output.show(schema.render())
