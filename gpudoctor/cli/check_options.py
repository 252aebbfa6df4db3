"""The options of `gpudoctor check` as a Wanted, and which of them exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gpudoctor.cli import options
from gpudoctor.wanted import Request, Wanted


def wanted_of(given: dict[str, Any]) -> Wanted:
    """Takes what to examine, and how, out of the command's parameters."""
    gpus = given.pop("gpus")
    request = Request(**options.taken_out(Request, given), gpus=gpus or "auto")
    return Wanted(
        **options.taken_out(Wanted, given),
        inside=request if request.image or request.container else None,
        gpus=() if request.image or gpus is None else indices(gpus),  # a container of an image only has the GPUs it was given
    )


def indices(text: str) -> tuple[int, ...]:
    parts = options.several([text])
    if not parts or not all(part.isdecimal() and part.isascii() for part in parts):
        raise click.UsageError(f"--gpus: {text!r} is not a list of GPU numbers such as 0,2.")
    return tuple(dict.fromkeys(map(int, parts)))


def forbid_contradictions(given: Mapping[str, Any]) -> None:
    for name in ("python", "gpus", "force", "measure_timeout", "image", "container"):
        if given["replay"] and given[name]:
            raise click.UsageError(f"--replay diagnoses a snapshot: --{name.replace('_', '-')} cannot be used with it.")
    if given["replay"] and not given["experiments"]:
        raise click.UsageError("--replay diagnoses a snapshot: --no-experiments cannot be used with it.")
    if given["quiet"] and given["verbose"]:
        raise click.UsageError("--quiet and --verbose cannot be used together.")
    if given["quiet"] and not given["destination"] and given["form"] not in (None, "text"):
        raise click.UsageError(f"--quiet shortens text: it cannot be used with --format {given['form']}, except with -o FILE.")
    if given["logs"].count("-") > 1:
        raise click.UsageError("--log -: standard input can be read only once.")
    forbid_contradictory_targets(given)
    _must_be_files_of_a_format(given["destination"], given["save"], given["replay"], bool(given["form"]))


def _must_be_files_of_a_format(destination: Path | None, save: Path | None, replay: Path | None, is_chosen: bool) -> None:
    from gpudoctor.report import formats

    if save and save == replay:
        raise click.UsageError("--save and --replay are the same file.")
    if destination and destination in (save, replay):
        raise click.UsageError("-o and the snapshot are the same file.")
    if destination and formats.is_bundle(destination):
        raise click.UsageError(f"-o {destination} is the name of a bundle: use gpudoctor report --bundle.")
    if Path("-") in (destination, save):
        raise click.UsageError("- is not a file name: without -o the report goes to standard output.")
    if not is_chosen:
        formats.named(destination)


def forbid_contradictory_targets(given: Mapping[str, Any]) -> None:
    for name in ("image", "container"):
        if given[name] == "":
            raise click.UsageError(f"--{name} is empty.")
    if given["image"] and given["container"]:
        raise click.UsageError("--image and --container cannot be used together.")
    _forbid_without_container(given)


def _forbid_without_container(given: Mapping[str, Any]) -> None:
    of_image = {
        "--docker-option": given.get("docker_options"),
        "--gpu-mode": given.get("gpu_mode", "auto") != "auto",
        "--registry": given.get("registry"),
        "--locked": given.get("locked"),
    }
    for name, value in of_image.items():
        if value and not given["image"]:
            raise click.UsageError(f"{name} requires --image.")
    if given["engine"] and not (given["image"] or given["container"]):
        raise click.UsageError("--engine requires --image or --container.")
