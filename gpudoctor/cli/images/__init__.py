"""`gpudoctor images`: one module per sub-command, imported only when that is used."""

# No builtin `list` in this file: importing the command of that name makes it an attribute of this package.
from __future__ import annotations

import click

from gpudoctor.cli import COMMANDS as GPUDOCTOR
from gpudoctor.cli.lazy import LazyGroup

COMMANDS = {
    "list": "List the images that have a name, and say which of them run here.",
    "show": "Say what is inside an image, what it needs, and whether it runs here.",
    "pull": "Pull an image, after a look at whether it runs here.",
    "build": "Build one of gpudoctor's own images.",
    "lock": "Pin images to the digests that they have today, in gpudoctor.lock.",
    "lint": "Find GPU mistakes in Dockerfiles and compose files.",
}
_EPILOG = """\
\b
Examples:
  gpudoctor images list                  what is there, newest first
  gpudoctor images list pytorch-24       every image with that in its name
  gpudoctor images show pytorch-24.08
  gpudoctor images pull pytorch-24.08
"""


class Commands(LazyGroup):
    """The sub-commands by name."""

    package = "gpudoctor.cli.images"
    helps = COMMANDS


@click.group(cls=Commands, epilog=_EPILOG, help=GPUDOCTOR["images"])
def command() -> None:
    pass
