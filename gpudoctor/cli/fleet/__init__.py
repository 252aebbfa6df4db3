"""`gpudoctor fleet`: one module per sub-command, imported only when it is used."""

from __future__ import annotations

import click

from gpudoctor.cli import COMMANDS as GPUDOCTOR
from gpudoctor.cli.lazy import LazyGroup

COMMANDS = {
    "check": "Check many machines by ssh, Slurm or Kubernetes, and group them by what differs.",
    "collective": "Run collectives over many machines, and find the one that slows them down.",
    "merge": "Compare saved snapshots or reports of many machines.",
    "diff": "Compare two days of a fleet.",
    "fix": "Print one fix script for each group of machines.",
}
_EPILOG = """\
\b
Examples:
  gpudoctor fleet check -w node[001-128]       by ssh, all at once
  gpudoctor fleet check -w @gpu --engine slurm --level standard
  gpudoctor fleet merge day1/*.json -o fleet.html
  gpudoctor fleet diff day1 day2
  gpudoctor fleet fix day2 -o fixes
"""


class Commands(LazyGroup):
    """The sub-commands by name."""

    package = "gpudoctor.cli.fleet"
    helps = COMMANDS


@click.group(cls=Commands, epilog=_EPILOG, help=GPUDOCTOR["fleet"])
def command() -> None:
    pass
