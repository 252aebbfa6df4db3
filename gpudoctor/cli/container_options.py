"""Options and completion that several commands about images and containers share."""

from __future__ import annotations

import shlex
from typing import Any

import click
from click.shell_completion import CompletionItem

registry = click.option(
    "--registry",
    metavar="HOST",
    default="",
    help="The registry for names, in the place of NVIDIA's and Docker Hub: HOST[:PORT][/FOLDER].  [or: GPUDOCTOR_REGISTRY]",
)
engine = click.option(
    "--engine",
    type=click.Choice(["docker", "podman"]),
    help="[default: docker, or podman where only that is installed]",
)
form = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of images, after Tab."""
    from gpudoctor.containers.images import catalog

    return [CompletionItem(name, help=image.title) for name, image in catalog.images().items() if name.startswith(incomplete)]


def words(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """`--docker-option '--cpus 4'` is --cpus, 4."""
    try:
        return tuple(word for value in values for word in shlex.split(value))
    except ValueError as failure:
        raise click.BadParameter(f"{failure}.".lower()) from None


def docker_option(function: Any) -> Any:
    return click.option(
        "--docker-option",
        "docker_options",
        metavar="OPTION",
        multiple=True,
        callback=words,
        help="Any other option of docker run; the last one wins. Can be repeated.",
    )(function)
