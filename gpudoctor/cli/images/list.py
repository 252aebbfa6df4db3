"""`gpudoctor images list`."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import options
from gpudoctor.cli.images import COMMANDS
from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.containers.images.catalog import Image
    from gpudoctor.containers.images.machine import ThisMachine

_INSIDE = ("cuda", "torch", "python")
_COLUMNS = ("NAME", "CUDA", "TORCH", "PYTHON", "DRIVER", "MIN", "RUNS HERE")
_IN_NAME = {"torch": ("CUDA", "TORCH")}
_LEGEND = """\
DRIVER: full support from this branch on. MIN: oldest branch that can run it,
by minor-version compatibility. For details: gpudoctor images show NAME
"""


@click.command(help=COMMANDS["list"] + " FILTER is part of a name, reference or title. In a pipe: all, one per line.")
@click.argument("filter", default="", shell_complete=options.images)
@click.option("--all", "is_all", is_flag=True, help="List all images, not only the newest.")
@options.registry
@options.text_or_json
@options.output()
def command(filter: str, is_all: bool, registry: str, form: str | None, destination: Path | None) -> None:
    from gpudoctor.cli import output
    from gpudoctor.containers.images import preflight

    form = output.prepared(form, destination)
    found = matching(filter, registry)
    machine = preflight.this_machine()
    if form == "json":
        text = json.dumps([as_object(image, machine) for image in found], indent=2, ensure_ascii=False) + "\n"
    elif not destination and sys.stdout is not None and sys.stdout.isatty():
        text = as_groups(found, machine, is_all or bool(filter))
    else:
        text = as_lines(found, machine)
    output.deliver(text, destination)


def matching(part: str, registry: str = "") -> list[Image]:
    from gpudoctor.containers.images import catalog

    everything = catalog.images().values()
    wanted = part.casefold()
    found = [image for image in everything if wanted in f"{image.name} {image.family} {image.reference} {image.title}".casefold()]
    if not found:
        raise UserError(f"no image has {part!r} in its name, reference or title")
    return [catalog.moved(image, registry) for image in found]


def as_object(image: Image, machine: ThisMachine) -> dict[str, Any]:
    from gpudoctor.containers.images import preflight

    verdict = preflight.verdict(image.needs, machine)
    return {
        "name": image.name,
        "reference": image.reference,
        "family": image.family,
        "title": image.title,
        "versions": dict(image.versions),
        "driver": image.needs.driver,
        "least_driver": preflight.least_driver(image.needs, machine.is_wsl),
        "runs": verdict.runs,
        "why": verdict.why,
        "built_here": image.recipe is not None,
        "verified": image.verified,
        "unverified": image.unverified,
    }


def as_lines(found: Iterable[Image], machine: ThisMachine) -> str:
    """One line per image, for grep, with its reference."""
    rows = [(*_row(image, machine), image.reference) for image in found]
    return _table([(*_COLUMNS, "REFERENCE"), *rows])


def as_groups(found: Sequence[Image], machine: ThisMachine, is_all: bool) -> str:
    """For a terminal of 80 columns: the machine, then one table per family."""
    from gpudoctor.containers.images import catalog

    shown: list[Image] = []
    text = heading(machine) + "\n"
    if os.environ.get("DOCKER_HOST", "unix://").partition(":")[0] not in ("unix", ""):
        text += "RUNS HERE is about this machine, not about the one in DOCKER_HOST.\n"
    for family in dict.fromkeys(image.family for image in found):
        group = [image for image in found if image.family == family]
        group = group if is_all else useful(group, machine)
        shown += group
        about = catalog.families().get(family)
        text += f"\n{about.title}: {about.repository}\n" if about else "\nBuilt here: gpudoctor images build NAME\n"
        text += _table(_without_needless([_COLUMNS, *(_row(image, machine) for image in group)], family), "  ")
    more = len(found) - len(shown)
    return f"{text}\n{_LEGEND}" + (
        f"{more} more: gpudoctor images list --all, or with a FILTER such as cuda-12.8\n" if more else ""
    )


def heading(machine: ThisMachine) -> str:
    from gpudoctor.containers.images import preflight

    if machine.driver is None:
        return "The version of the Windows driver is unknown" if machine.is_wsl else "No NVIDIA driver is loaded on this machine"
    has = preflight.driver_cuda(machine.driver)
    cuda = " (CUDA {}.{})".format(*has) if has else ""
    names = [card.name for card in machine.gpus]
    gpus = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    return f"Driver {machine.driver}{cuda}{', ' if gpus else ''}{gpus}"


def useful(group: Sequence[Image], machine: ThisMachine) -> list[Image]:
    """The newest images of a family, the newest that runs here, and the newest that runs here with full support."""
    from gpudoctor.containers.images import preflight

    plain = plainest(group)
    runs = [preflight.verdict(image.needs, machine).runs for image in plain]
    newest = [next((image for image, run in zip(plain, runs, strict=True) if run in those), None) for those in _RUNNING]
    kept = [*plain[: _SHOWN.get(group[0].family, len(plain))], *(image for image in newest if image)]
    return [image for image in plain if image in kept]


_RUNNING = (("yes",), ("yes", "minor", "compat"))
_SHOWN = {"pytorch": 8, "torch": 5, "cuda": 6}
_UBUNTU = "24.04"  # preferred to older and newer releases


def plainest(group: Sequence[Image]) -> list[Image]:
    """One image out of several that differ only in variant and distribution."""
    if group[0].family == "torch":
        return [image for image in group if image.name.endswith("-runtime")]
    if group[0].family != "cuda":
        return [*group]
    devel: dict[str, Image] = {}
    for image in group:
        if re.fullmatch(r"cuda-[\d.]+-devel-.*", image.name) and (
            image.versions["ubuntu"] == _UBUNTU or image.versions["cuda"] not in devel
        ):
            devel[image.versions["cuda"]] = image
    return [*devel.values()]


def _row(image: Image, machine: ThisMachine) -> tuple[str, ...]:
    from gpudoctor.containers.images import preflight

    inside = [_short(image.versions.get(name, "")) for name in _INSIDE]
    drivers = (image.needs.driver, preflight.least_driver(image.needs, machine.is_wsl))
    branches = [driver.split(".")[0] if driver else "" for driver in drivers]
    return (image.name, *inside, *branches, preflight.verdict(image.needs, machine).brief)


def _short(version: str) -> str:
    """13.3.0 of 13.3.0.035, 2.14.0a0 of 2.14.0a0+b2c75dd062."""
    return re.sub(r"^(\d+\.\d+\.\d+)\.\d+$", r"\1", version.partition("+")[0])


def _without_needless(rows: Sequence[Sequence[str]], family: str) -> list[tuple[str, ...]]:
    """Without columns that are empty or repeat the name."""
    kept = [column for column in range(len(rows[0])) if any(row[column] for row in rows[1:])]
    kept = [column for column in kept if rows[0][column] not in _IN_NAME.get(family, ())]
    return [tuple(row[column] for column in kept) for row in rows]


def _table(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    return "".join(f"{line}\n" for line in _lines(rows, indent))


def _lines(rows: Sequence[Sequence[str]], indent: str) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (f"{cell or '-':<{width}}" for cell, width in zip(row, widths, strict=True))
        yield (indent + "  ".join(cells)).rstrip()
