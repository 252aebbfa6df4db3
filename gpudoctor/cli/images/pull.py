"""`gpudoctor images pull`."""

from __future__ import annotations

import click

from gpudoctor.cli import options
from gpudoctor.cli.images import COMMANDS

_HELP = f"""{COMMANDS["pull"]}

NAME is one of the list, or a reference in full. What the image needs is read from its registry and compared with the driver and
the GPUs here, and its size with the room on the engine's disk, before anything is pulled. Progress goes to standard error; the
image by its digest, once it is here, to standard output.
"""


@click.command(help=_HELP)
@options.image_name
@options.locked("Pull the digest in gpudoctor.lock, wherever the tag points today.")
@click.option("--force", is_flag=True, help="Pull it although it does not run here, or has too little room.")
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
