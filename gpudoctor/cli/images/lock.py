"""`gpudoctor images lock`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor import screen
from gpudoctor.cli import options
from gpudoctor.cli.images import COMMANDS
from gpudoctor.cli.paths import PATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpudoctor.containers.images.lock import Pin

_HELP = f"""{COMMANDS["lock"]}

NAME is a name from `images list`, or a full image reference. For an image that is built here, its base is pinned. Without NAME,
all images in the file are looked up again. Changes are listed; nothing is pulled.
"""


@click.command(help=_HELP)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=options.images)
@click.option(
    "--file",
    metavar="FILE",
    type=PATH,
    default=Path("gpudoctor.lock"),
    show_default=True,
    help="The lock file.",
)
@options.engine
@options.registry
def command(names: tuple[str, ...], file: Path, engine: str | None, registry: str) -> None:
    from gpudoctor.cli import output
    from gpudoctor.containers.images import lock as locks
    from gpudoctor.containers.images import locking
    from gpudoctor.errors import UserError

    before = locks.read(file)
    wanted = names or tuple(before)
    if not wanted:
        raise UserError(f"{file} contains no images yet. Name those to pin, for example: gpudoctor images lock pytorch-24.08")
    output.must_be_writable(file)
    with output.progress() as tell:
        after = locks.renewed(before, locking.digests(wanted, engine, registry, tell))
    if after != before:
        output.write(file, locks.dump(after))
    output.show("".join(f"{line}\n" for line in changes(dict.fromkeys(wanted), before, after)))
    screen.note(f"{file} {'written' if after != before else 'unchanged'}.")


def changes(names: Mapping[str, None], before: Mapping[str, Pin], after: Mapping[str, Pin]) -> Iterator[str]:
    """One to three lines for each image that was looked up."""
    for name in names:
        old, new = before.get(name), after[name]
        if old is None:
            yield f"new        {name}"
        elif old == new:
            yield f"unchanged  {name}  since {new.date}"
            continue
        else:
            yield f"changed    {name}  pinned on {old.date}"
            yield f"  was {old.digest}" + ("" if old.reference == new.reference else f" of {old.reference}")
        yield f"  is  {new.digest}" + ("" if old and old.reference == new.reference else f" of {new.reference}")
