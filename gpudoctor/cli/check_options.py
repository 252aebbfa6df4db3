"""What was asked for on the command line of `gpudoctor check`: what is examined, and what does not go together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gpudoctor.cli import options
from gpudoctor.wanted import Request, Wanted


def wanted_of(given: dict[str, Any]) -> Wanted:
    """Takes what is examined, and how, out of what the command was given."""
    gpus = given.pop("gpus")
    request = Request(**options.taken_out(Request, given), gpus=gpus or "auto")
    return Wanted(
        **options.taken_out(Wanted, given),
        inside=request if request.image or request.container else None,
        gpus=() if request.image or gpus is None else indices(gpus),  # a container of an image has no others than it was given
    )


def indices(text: str) -> tuple[int, ...]:
    parts = options.several([text])
    if not parts or not all(part.isdecimal() and part.isascii() for part in parts):
        raise click.UsageError(f"--gpus: {text!r} is no list of GPU numbers such as 0,2.")
    return tuple(dict.fromkeys(map(int, parts)))


def names(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """`--only a,b --only c` is a, b, c."""
    found = options.several(values)
    if values and not found:
        raise click.BadParameter("it names no check.")
    return found


def forbid_contradictions(given: Mapping[str, Any]) -> None:
    for name in ("save", "python", "gpus", "force", "measure_timeout", "image", "container"):
        if given["replay"] and given[name]:
            raise click.UsageError(f"--replay reads a snapshot and asks no machine: it goes without --{name.replace('_', '-')}.")
    if given["logs"].count("-") > 1:
        raise click.UsageError("--log -: standard input can be read once.")
    for name in ("image", "container"):
        if given[name] == "":
            raise click.UsageError(f"--{name} is empty.")
    if given["image"] and given["container"]:
        raise click.UsageError("--image starts a container and --container enters one that runs: give one of them.")
    _forbid_without_container(given)
    _must_be_files_of_a_format(given["destination"], given["save"], given["replay"], bool(given["form"]))


def _must_be_files_of_a_format(destination: Path | None, save: Path | None, replay: Path | None, is_chosen: bool) -> None:
    from gpudoctor.report import formats

    if destination and destination in (save, replay):
        raise click.UsageError("-o names the file of the snapshot.")
    if destination and formats.is_bundle(destination):
        raise click.UsageError(f"-o {destination} would be a bundle: gpudoctor report writes one.")
    if Path("-") in (destination, save):
        raise click.UsageError("- is no file: without -o the report goes to standard output.")
    if not is_chosen:
        formats.named(destination)


def _forbid_without_container(given: Mapping[str, Any]) -> None:
    of_image = {
        "--docker-option": given["docker_options"],
        "--gpu-mode": given["gpu_mode"] != "auto",
        "--registry": given["registry"],
        "--locked": given["locked"],
    }
    for name, value in of_image.items():
        if value and not given["image"]:
            raise click.UsageError(f"{name} is about an image: it goes with --image.")
    if given["engine"] and not (given["image"] or given["container"]):
        raise click.UsageError("--engine is about a container: it goes with --image or --container.")
