"""`gpudoctor images build`."""

from __future__ import annotations

import click

from gpudoctor import screen
from gpudoctor.cli import options, output
from gpudoctor.cli.images import COMMANDS

_HELP = f"""{COMMANDS["build"]}

NAME is cupy, numba or doctor. The image is built only if its recipe or its base has changed. Progress goes to standard error, the
image's name and id to standard output. Arguments after -- are passed to the engine's builder unchanged:

\b
  gpudoctor images build cupy -- --build-arg PIP_INDEX_URL=https://HOST/simple
  gpudoctor images build cupy -- --network=host
"""


@click.command(help=_HELP)
@options.image_name
@click.argument("builder_options", nargs=-1, metavar="[-- OPTION…]", type=click.UNPROCESSED)
@click.option("--tag", metavar="REFERENCE", default="", help="Name of the image.  [default: gpudoctor/NAME:latest]")
@click.option("--base", metavar="REFERENCE", default="", help="Build on this image.  [default: the recipe's NVIDIA image]")
@options.locked("Build on the base digest in gpudoctor.lock.")
@click.option("--no-cache", is_flag=True, help="Rebuild everything, even if nothing has changed.")
@options.verbose("Show all output of the builder.")
@options.engine
@options.registry
def command(
    name: str,
    builder_options: tuple[str, ...],
    tag: str,
    base: str,
    locked: bool,
    no_cache: bool,
    verbose: bool,
    engine: str | None,
    registry: str,
) -> None:
    from gpudoctor.containers.engine import client as engines
    from gpudoctor.containers.images import builder, building, catalog, reference
    from gpudoctor.errors import UserError

    if locked and base:
        raise UserError("--locked builds on the base in the lock file, --base on another image: use only one of them")
    if tag and reference.parse(tag).digest:
        raise UserError(f"{tag} contains a digest, which an image gets only when it is built")
    image = catalog.resolve(name)
    wanted = base or building.base_of(image, registry)
    found = engines.find(engine)
    with output.progress() as tell:

        def said(line: str) -> None:
            if verbose:
                screen.note(line)
            elif step := builder.step(line):
                tell(step)

        base_found = building.resolved(found, name, wanted, locked)
        built = building.build(found, image, base_found, tag=tag, is_forced=no_cache, options=builder_options, tell=said)
    if not built.is_new:
        screen.note("Not built: neither the recipe nor the base has changed since the last build (--no-cache rebuilds it)")
    output.show(f"{built.reference} {built.id}\n")
