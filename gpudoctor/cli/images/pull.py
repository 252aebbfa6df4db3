"""`gpudoctor images pull`."""

from __future__ import annotations

import click

from gpudoctor.cli import options
from gpudoctor.cli.images import COMMANDS

_HELP = f"""{COMMANDS["pull"]}

NAME is a name from `images list`, or a full image reference. Before the pull, the image's requirements are read from its registry
and compared with the driver and GPUs of this machine, and its size with the free space on the engine's disk. Progress goes to
standard error. When the pull is done, the image's digest is printed to standard output.
"""


@click.command(help=_HELP)
@options.image_name
@options.locked("Pull the digest in gpudoctor.lock, even if the tag has moved.")
@click.option("--force", is_flag=True, help="Pull the image even if it does not run here or the disk space is too small.")
@options.engine
@options.registry
def command(name: str, locked: bool, force: bool, engine: str | None, registry: str) -> None:
    from gpudoctor.cli import output
    from gpudoctor.containers.engine import client as engines
    from gpudoctor.containers.images import catalog, lock, pulling
    from gpudoctor.errors import UserError

    image = catalog.resolve(name, registry)
    if image.recipe is not None:
        raise UserError(f"{name} is built here, not pulled: gpudoctor images build {name}")
    reference = lock.pinned(image, locked)
    found = pulling.pull(engines.find(engine), image, reference, force=force)
    output.show(f"{pulling.digest(found, reference)}\n")
