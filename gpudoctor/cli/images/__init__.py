"""`gpudoctor images`: one module per sub-command, imported only when it is used."""

# No builtin `list` in this file: importing the command of that name makes it an attribute of this package.
from __future__ import annotations

import click

from gpudoctor.cli import COMMANDS as GPUDOCTOR
from gpudoctor.cli.lazy import LazyGroup

COMMANDS = {
    "list": "List the known images and whether they run here.",
    "show": "Show what an image contains, what it requires, and whether it runs here.",
    "pull": "Check that an image runs here, then pull it.",
    "build": "Build one of gpudoctor's own images.",
    "lock": "Pin images to their current digests, in gpudoctor.lock.",
    "cache": "Show or clear the caches of containers that gpudoctor ran.",
    "lint": "Find GPU mistakes in Dockerfiles and compose files.",
}
_EPILOG = """\
\b
Examples:
  gpudoctor images list                  the known images, newest first
  gpudoctor images list pytorch-24       images with this in their name
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
