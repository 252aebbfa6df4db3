"""`gpudoctor images build`."""

from __future__ import annotations

import click

from gpudoctor.cli import options, output
from gpudoctor.cli.images import COMMANDS

_HELP = f"""{COMMANDS["build"]}

NAME is one of cupy, numba and doctor. It is built only where its recipe or its base has changed since. Progress goes to standard
error; the image's name and id to standard output. What follows -- goes to the engine's builder as it is:

\b
  gpudoctor images build cupy -- --build-arg PIP_INDEX_URL=https://HOST/simple
  gpudoctor images build cupy -- --network=host
"""


@click.command(help=_HELP)
@options.image_name
@click.argument("builder_options", nargs=-1, metavar="[-- OPTION…]", type=click.UNPROCESSED)
@click.option("--tag", metavar="REFERENCE", default="", help="What the image is called.  [default: gpudoctor/NAME:latest]")
@click.option("--base", metavar="REFERENCE", default="", help="Build on this image.  [default: NVIDIA's, as the recipe has it]")
@options.locked("Build on the digest of the base in gpudoctor.lock.")
@click.option("--no-cache", is_flag=True, help="Build all of it anew, also where nothing has changed.")
@options.verbose("Show all that the builder says.")
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
        raise UserError("--locked builds on the base in the lock file, --base on another: give one of them")
    if tag and reference.parse(tag).digest:
        raise UserError(f"{tag} names a digest, which an image has only when it is built")
    image = catalog.resolve(name)
    wanted = base or building.base_of(image, registry)
    found = engines.find(engine)
    with output.progress() as tell:

        def said(line: str) -> None:
            if verbose:
                click.echo(line, err=True)
            elif step := builder.step(line):
                tell(step)

        base_found = building.resolved(found, name, wanted, locked)
        built = building.build(found, image, base_found, tag=tag, is_forced=no_cache, options=builder_options, tell=said)
    if not built.is_new:
        click.echo(
            "Nothing has changed since it was built: neither the recipe nor the base. (--no-cache builds it anew)", err=True
        )
    output.show(f"{built.reference} {built.id}\n")
