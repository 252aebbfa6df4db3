"""What was asked for on the command line of `gpudoctor check`, and what of it goes together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gpudoctor.cli import options, sharing


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    level: str | None
    only: tuple[str, ...]
    skip: tuple[str, ...]
    python: str | None
    expect_gpus: int | None
    form: str | None
    destination: Path | None
    save: Path | None
    replay: Path | None
    fail_on: str
    timeout: float
    verbose: bool
    gpus: str | None
    force: bool
    measure_timeout: float | None
    baseline: Path | None
    image: str | None
    container: str | None
    engine: str | None
    docker_options: tuple[str, ...]
    gpu_mode: str
    registry: str
    locked: bool
    logs: tuple[str, ...]
    sharing: sharing.Sharing

    @property
    def measured_gpus(self) -> tuple[int, ...]:
        """`--gpus 0,2` is 0, 2; a container of an image has no others than those that were asked for, so all of them."""
        return () if self.image or self.gpus is None else indices(self.gpus)

    @property
    def expected(self) -> dict[str, int]:
        return {} if self.expect_gpus is None else {"gpus": self.expect_gpus}

    @property
    def in_container(self) -> bool:
        return bool(self.image or self.container)


def options_of(given: dict[str, Any]) -> Options:
    how = sharing.chosen(given)
    return Options(**given, sharing=how)


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


def forbid_contradictions(given: Options) -> None:
    asking: dict[str, object] = {
        "--save": given.save,
        "--python": given.python,
        "--gpus": given.gpus,
        "--force": given.force,
        "--measure-timeout": given.measure_timeout,
        "--image": given.image,
        "--container": given.container,
    }
    for name, value in asking.items():
        if given.replay and value:
            raise click.UsageError(f"--replay reads a snapshot and asks no machine: it goes without {name}.")
    if given.logs.count("-") > 1:
        raise click.UsageError("--log -: standard input can be read once.")
    for name, value in {"--image": given.image, "--container": given.container}.items():
        if value == "":
            raise click.UsageError(f"{name} is empty.")
    if given.image and given.container:
        raise click.UsageError("--image starts a container and --container enters one that runs: give one of them.")
    _forbid_without_container(given)
    _ = given.measured_gpus
    _must_be_files_of_a_format(given)


def _must_be_files_of_a_format(given: Options) -> None:
    from gpudoctor.report import formats

    if given.destination and given.destination in (given.save, given.replay):
        raise click.UsageError("-o names the file of the snapshot.")
    if given.destination and formats.is_bundle(given.destination):
        raise click.UsageError(f"-o {given.destination} would be a bundle: gpudoctor report writes one.")
    if Path("-") in (given.destination, given.save):
        raise click.UsageError("- is no file: without -o the report goes to standard output.")
    if not given.form:
        formats.named(given.destination)


def _forbid_without_container(given: Options) -> None:
    of_image: dict[str, object] = {
        "--docker-option": given.docker_options,
        "--gpu-mode": given.gpu_mode != "auto",
        "--registry": given.registry,
        "--locked": given.locked,
    }
    for name, value in of_image.items():
        if value and not given.image:
            raise click.UsageError(f"{name} is about an image: it goes with --image.")
    if given.engine and not given.in_container:
        raise click.UsageError("--engine is about a container: it goes with --image or --container.")
