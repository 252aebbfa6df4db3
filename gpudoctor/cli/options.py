"""The options and arguments that several commands share, each declared once."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from gpudoctor.choices import FORMATS, GPU_MODES, LEVELS
from gpudoctor.cli import completing
from gpudoctor.cli.paths import NAME, PATH
from gpudoctor.cli.times import Time

Option = Callable[[Any], Any]


def several(values: Sequence[str]) -> tuple[str, ...]:
    """`a,b` and `c` are a, b, c."""
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def taken_out(kind: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Removes and returns the options that are fields of a dataclass."""
    return {field.name: given.pop(field.name) for field in fields(kind) if field.name in given}


# What to examine, and for how long.


def level(help: str) -> Option:
    return click.option("--level", type=click.Choice(LEVELS), help=help)


def python(
    help: str = "Examine this interpreter or environment.  [default: the active environment, else python3 on PATH]",
) -> Option:
    return click.option("--python", metavar="PATH", type=NAME, help=help)


def _names(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """`--only a,b --only c` is a, b, c."""
    found = several(values)
    if values and not found:
        raise click.BadParameter("no check given.")
    return found


only = click.option(
    "--only",
    metavar="ID|AREA|TAG,…",
    multiple=True,
    callback=_names,
    shell_complete=completing.checks,
    help="Run only these checks (gpudoctor list), of any level, or those of an area or tag, and the checks they need.",
)
skip = click.option(
    "--skip",
    metavar="ID|AREA|TAG,…",
    multiple=True,
    callback=_names,
    shell_complete=completing.checks,
    help="Skip these checks, areas or tags.",
)


def _own_checks(context: click.Context, parameter: click.Parameter, folders: tuple[Path, ...]) -> None:
    if folders:
        from gpudoctor import catalog

        for folder in folders:
            catalog.add(folder)


own_checks = click.option(
    "--checks",
    metavar="DIR",
    type=PATH,
    multiple=True,
    is_eager=True,
    expose_value=False,
    callback=_own_checks,
    help="Also run the checks in this folder of yours: Python code that is run.",
)
container = click.option(
    "--container", metavar="ID", shell_complete=completing.containers, help="Diagnose this running container, and its host."
)
gpus = click.option(
    "--gpus", metavar="N,…", help="Measure only these GPUs, numbered as in nvidia-smi; with --image, give the container these."
)
expect_gpus = click.option(
    "--expect-gpus", metavar="N", type=click.IntRange(1, 1024), help="Fail unless this many GPUs are found."
)

expect = click.option(
    "--expect", metavar="FILE|NAME", type=NAME, help="Compare with what this machine should have (gpudoctor expect list)."
)


def replay(help: str) -> Option:
    return click.option("--replay", metavar="FILE", type=PATH, help=help)


def logs(help: str) -> Option:
    return click.option("--log", "logs", metavar="FILE", type=NAME, multiple=True, help=help)


timeout = click.option(
    "--timeout",
    metavar="TIME",
    type=Time(1, 3600),
    default="20s",
    show_default=True,
    help="Time limit for collecting data.",
)

# What to write, and where.


def report_format(default: str) -> Option:
    """The format of a report. default: the one used if the name of -o does not decide."""
    help = f"Output format.  [default: from the name of -o, else {default}]"
    return click.option("--format", "form", type=click.Choice(FORMATS), help=help)


text_or_json = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), help="Output format.  [default: from the name of -o, else text]"
)


def printed_format(help: str | None = None) -> Option:
    """The format of what is only printed."""
    return click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help=help)


script_or_json = click.option(
    "--format", "form", type=click.Choice(["sh", "json"]), help="Output format.  [default: from the name of -o, else sh]"
)


def _once(context: click.Context, parameter: click.Parameter, paths: tuple[Path, ...]) -> Path | None:
    """click alone keeps the last one and drops the others, which are then missing, or those of an earlier run."""
    if len(paths) < 2:
        return paths[0] if paths else None
    more = " For more formats: --save FILE, then gpudoctor report FILE -o …" if _saves(context) else ""
    raise click.UsageError(f"{parameter.opts[0]} was given {len(paths)} times, but only one file is written.{more}")


def _saves(context: click.Context) -> bool:
    return any(parameter.name == "save" for parameter in context.command.params)


def output(help: str = "Write to FILE.") -> Option:
    return click.option("-o", "--output", "destination", metavar="FILE", type=PATH, multiple=True, callback=_once, help=help)


def save(help: str) -> Option:
    return click.option("--save", metavar="FILE", type=PATH, multiple=True, callback=_once, help=help)


def verbose(help: str = "Show all evidence.") -> Option:
    return click.option("-v", "--verbose", is_flag=True, help=help)


quiet = click.option("-q", "--quiet", is_flag=True, help="Print two lines: the verdict and the titles of the problems.")


fail_on = click.option(
    "--fail-on",
    type=click.Choice(["warn", "fail"]),
    default="fail",
    show_default=True,
    help="Lowest severity that sets exit code 1.",
)

# Containers and images.


def images(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Image names for shell completion."""
    from gpudoctor.containers.images import catalog

    return [CompletionItem(name, help=image.title) for name, image in catalog.images().items() if name.startswith(incomplete)]


image_name = click.argument("name", shell_complete=images)


def image(help: str, required: bool = False) -> Option:
    return click.option("--image", metavar="NAME", required=required, shell_complete=images, help=help)


engine = click.option(
    "--engine",
    type=click.Choice(["docker", "podman"]),
    help="[default: docker, or podman if only that is installed]",
)
registry = click.option(
    "--registry",
    metavar="HOST",
    default="",
    help="Registry to use instead of nvcr.io and Docker Hub: HOST[:PORT][/FOLDER].  [env: GPUDOCTOR_REGISTRY]",
)


def locked(help: str) -> Option:
    return click.option("--locked", is_flag=True, help=help)


def gpu_mode(help: str) -> Option:
    return click.option("--gpu-mode", type=click.Choice(GPU_MODES), default="auto", show_default=True, help=help)


def _words(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """`--docker-option '--cpus 4'` is --cpus, 4."""
    try:
        return tuple(word for value in values for word in shlex.split(value))
    except ValueError as failure:
        raise click.BadParameter(f"{failure}.".lower()) from None


docker_option = click.option(
    "--docker-option",
    "docker_options",
    metavar="OPTION",
    multiple=True,
    callback=_words,
    help="Another option for docker run; overrides gpudoctor's own. Can be repeated.",
)

# Redaction; sharing.chosen takes these out of a command's parameters.


def _kinds(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    found = several(values)
    if not found:
        return ()
    from gpudoctor.redaction.kinds import KEPT_ON_REQUEST

    for name in found:
        if name == "secrets":
            raise click.BadParameter("secrets cannot be kept; --no-redact turns redaction off.")
        if name not in KEPT_ON_REQUEST:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(KEPT_ON_REQUEST)}.")
    return found


_SHARING = (
    click.option(
        "--redact", is_flag=True, help="Hide names, paths, addresses and secrets in all output.  [env: GPUDOCTOR_REDACT=1]"
    ),
    click.option("--no-redact", is_flag=True, help="Do not hide names, paths and addresses, not even in files to share."),
    click.option(
        "--keep",
        metavar="KIND,…",
        multiple=True,
        callback=_kinds,
        help="Do not redact these: hostname, users, paths, addresses, gpu-uuids …",
    ),
    click.option("--redact-word", "redact_words", metavar="WORD", multiple=True, help="Also redact this word. Can be repeated."),
    click.option("--same-map", is_flag=True, help="Reuse the tokens of the last report, so that reports can be compared."),
)


def sharing(function: Any) -> Any:
    for option in reversed(_SHARING):
        function = option(function)
    return function
