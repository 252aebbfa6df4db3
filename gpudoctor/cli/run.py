"""`gpudoctor run`: starts a container from an image, with the GPUs and the right `docker run` options."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.cli import COMMANDS, options
from gpudoctor.cli.as_with_docker import AsWithDocker
from gpudoctor.containers.engine import gpus
from gpudoctor.containers.run import profiles
from gpudoctor.plain import plain

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine
    from gpudoctor.containers.engine.gpus import Access
    from gpudoctor.containers.images.catalog import Image
    from gpudoctor.containers.run.command import Command, Options
    from gpudoctor.containers.run.running import Ended

_PROFILES = "\n\n".join(f"  {name}: {profile.why}" for name, profile in profiles.PROFILES.items())
_HELP = f"""{COMMANDS["run"]}

NAME is a name from `gpudoctor images list`, or any image reference. Without a command, a shell is started. The equivalent
`docker run` command is printed to standard error, without secrets: these are passed on in the environment. Options that it adds
besides the GPU request are explained here and can be changed.

Always added: --rm (use --keep to keep the container), --init (ends processes left running inside; disable it with
--docker-option --init=false), and on a terminal -i and -t (disable them with --docker-option --tty=false).

Added if the image does not set it and the GPUs are not provided by CDI: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility, the parts
of the driver that CUDA and nvidia-smi need (use -e to set others).

--security-opt=label=disable is added if SELinux is enabled, and for GPUs with Podman, because SELinux blocks access to the GPUs
and to mounted folders.

Added by --for:

{_PROFILES}
"""
_EPILOG = """\
\b
Examples:
  gpudoctor run --image pytorch-24.08                    start a shell
  gpudoctor run --image pytorch-24.08 -- python train.py
  gpudoctor run --image pytorch-24.08 --gpus 0,2 --for training -- torchrun …
  gpudoctor run --image pytorch-24.08 --user me          new files belong to you
  gpudoctor run --image pytorch-24.08 --dry-run          only print the command
  gpudoctor run --image repository/name:tag --docker-option --cpus=4

\b
Exit code: that of the command inside; 125, 126 or 127 if the engine could not
start it, as with docker; 2 wrong usage, 3 no engine or no image.
"""


def _size(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """As docker reads sizes: 64m, 1.5g, 1048576."""
    if value and not re.fullmatch(r"\d+(\.\d+)? ?([kmgtp]i?)?b?", value, re.IGNORECASE):
        raise click.BadParameter(f"{value!r} is not a size such as 512m or 16g.")
    return value


@dataclass(frozen=True)
class Ours:
    """The options that are not passed on to docker's command."""

    image: str
    gpus: str
    gpu_mode: str
    engine: str | None
    registry: str
    locked: bool
    force: bool
    dry_run: bool
    quiet: bool
    detach: bool


def _profiles(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """`--for a,b --for c` is a, b, c."""
    names = options.several(values)
    for name in names:
        if name not in profiles.PROFILES:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(profiles.PROFILES)}.")
    if values and not names:
        raise click.BadParameter("the list is empty.")
    return tuple(dict.fromkeys(names))


def _selection(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value != "auto":
        gpus.parse(value)
    return value


@click.command(cls=AsWithDocker, help=_HELP, epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@options.image("The image: a name from the catalog, or any image reference.", required=True)
@click.option(
    "--gpus",
    metavar="WHICH",
    default="auto",
    callback=_selection,
    help="all, none, 0,2 (indexes as in nvidia-smi), a UUID of a GPU or MIG instance, 0:1 (GPU and MIG instance), "
    "count=2 (any two).  [default: all, if this machine has a GPU]",
)
@options.gpu_mode("How to request GPUs. auto: CDI if Docker knows the devices, else the nvidia runtime, else --gpus.")
@click.option(
    "--for", "profiles", metavar="WORK,…", multiple=True, callback=_profiles, help="Add options for a kind of work; see above."
)
@click.option("-e", "--env", metavar="NAME[=VALUE]", multiple=True, help="Set a variable; without VALUE, copy it from here.")
@click.option(
    "--env-file",
    "env_files",
    metavar="FILE",
    multiple=True,
    help="Set the variables in a file, as docker reads it: NAME=VALUE or NAME in each line. -e overrides it.",
)
@click.option("-v", "--volume", "volumes", metavar="HERE:THERE", multiple=True, help="Mount a folder or file.")
@click.option(
    "--mount/--no-mount",
    default=True,
    help="Mount the current folder as /workspace/host and start there; NVIDIA's images use /workspace themselves.  [default]",
)
@click.option("-w", "--workdir", metavar="PATH", default="", help="Start in this folder of the container.")
@click.option(
    "-u",
    "--user",
    metavar="USER",
    default="",
    help="me: your ids, name and groups, with a writable home, so that new files belong to you. Or any value that docker "
    "accepts.  [default: the image's user, usually root]",
)
@click.option(
    "--cache/--no-cache",
    default=True,
    help="Keep downloads (Hugging Face, torch, pip) and compiled kernels (CUDA, Triton, Inductor, CuPy, Numba) in "
    "~/.cache/gpudoctor/containers; compiled kernels separately for each image.  [default]",
)
@click.option(
    "--shm-size",
    metavar="SIZE",
    default="",
    callback=_size,
    help="Size of the shared memory.  [default: half of the memory, at most 16g; docker: 64m]",
)
@click.option("--ipc", metavar="MODE", default="", help="host: use the host's shared memory, without a size limit.")
@click.option(
    "--ulimit",
    "ulimits",
    metavar="NAME=VALUE",
    multiple=True,
    help="Limits to use instead of memlock=-1 (pinned memory, RDMA) and stack=67108864, which are omitted if the engine is not "
    "allowed to set them. none: set no limits.",
)
@click.option("--network", metavar="NAME", default="", help="host: for work across several machines. Or any network.")
@click.option(
    "-p", "--publish", "ports", metavar="PORT", multiple=True, help="Publish a port; 127.0.0.1:8888:8888 for this machine only."
)
@click.option("--name", metavar="NAME", default="", help="Name the container.")
@click.option("--keep", is_flag=True, help="Do not remove the container when it exits.")
@click.option("-d", "--detach", is_flag=True, help="Run in the background: print the container's id and return.")
@options.docker_option
@options.engine
@options.registry
@options.locked("Use the image digest in gpudoctor.lock.")
@click.option("--force", is_flag=True, help="Pull the image even if it cannot run here.")
@click.option("--dry-run", is_flag=True, help="Only print the docker command; pull and start nothing.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show the docker command.")
@click.option("-i", "-t", "--interactive", "--tty", "--rm", "as_always", is_flag=True, hidden=True, expose_value=False)
@click.argument("command", nargs=-1, metavar="[-- COMMAND…]", type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    from gpudoctor.containers.engine import client as engines
    from gpudoctor.containers.images import catalog, lock
    from gpudoctor.containers.run import caller, detached, env_files, private
    from gpudoctor.containers.run import command as commands
    from gpudoctor.containers.run.running import Run

    ours = Ours(**options.taken_out(Ours, given))
    given["env"] = (*env_files.variables(given.pop("env_files")), *given["env"])
    chosen = commands.Options(**given)
    image = catalog.resolve(ours.image, ours.registry)
    reference = lock.pinned(image, ours.locked)
    engine = engines.find(ours.engine)
    access = gpus.access(engine, ours.gpus, ours.gpu_mode)
    about = _image(engine, image, reference, ours)
    where = caller.here(engine, profiles.of(chosen.profiles).devices)
    if ours.dry_run and sys.stdin is not None:  # output written to a file may later be run in a terminal
        where = replace(where, has_terminal=sys.stdin.isatty())
    build = detached.build if ours.detach else commands.build
    built = build(engine, reference, about, access, chosen, where)
    if ours.dry_run:
        from gpudoctor.cli import output

        shown = built.shown()
        output.show(shown + "\n")
        if names := " ".join(built.environment):
            _tell(f"secret values are not shown: export {names} before you run this command")
        if private.HIDDEN in shown:
            _tell(f"put your own values in the place of {private.HIDDEN} before you run this command")
        _tell_of_dry_run(about, access, chosen, ours)
        return
    if built.caches and (why := built.caches.prepare()):
        _tell(f"caches are disabled: {why}")
        built = build(engine, reference, about, access, replace(chosen, cache=False), where)
    _announce(built, access, ours)
    run = Run(engine, built, access.mode != "none", _tell)
    ended = detached.start(engine, built, _tell) if ours.detach else run.wait()
    if ours.detach and ended.detached:
        click.echo(ended.detached)
    context.exit(_finish(engine, access, ended, ours.quiet))


def _tell_of_dry_run(about: Mapping[str, Any], access: Access, chosen: Options, ours: Ours) -> None:
    """What is said before a real run, and what it adds to the command."""
    _warn_without_gpu(access, ours)
    if not about:
        caches = ", and cache folders, which depend on its digest, are mounted" if chosen.cache else ""
        _tell(f"the image is not on this machine: a real run pulls it first; then what it sets itself is left out{caches}")


def _image(engine: Engine, image: Image, reference: str, ours: Ours) -> dict[str, Any]:
    from gpudoctor.containers.images import pulling

    if ours.dry_run:
        return engine.image(reference) or {}
    return pulling.ensure(engine, image, reference, force=ours.force)


def _warn_without_gpu(access: Access, ours: Ours) -> bool:
    is_without = access.mode == "none" and ours.gpus == "auto"
    if is_without:
        _tell(f"Warning: {access.why}, so the container gets no GPU (use --gpus all to request GPUs anyway)")
    return is_without


def _announce(built: Command, access: Access, ours: Ours) -> None:
    from gpudoctor.model import WAYS

    if _warn_without_gpu(access, ours):
        pass
    elif access.mode != "none" and not ours.quiet:
        _tell(f"GPUs with {WAYS[access.mode]}: {access.why}")
    if ours.gpus.isdecimal() and ours.gpus != "0":
        _tell(f"--gpus {ours.gpus} selects the GPU with index {ours.gpus}; for any {ours.gpus} GPUs use --gpus count={ours.gpus}")
    for note in built.notes:
        _tell(note)
    if not ours.quiet:
        _write(built.shown())


def _finish(engine: Engine, access: Access, ended: Ended, is_quiet: bool) -> int:
    if ended.detached:
        _tell(
            f"the container is still running. Attach: {engine.program} attach {ended.detached}; "
            f"its output: {engine.program} logs -f {ended.detached}; remove: {engine.program} rm --force {ended.detached}"
        )
    if ended.refusal:
        _write(_why(engine, access, ended))
    elif not ended.has_looked and (ended.code > 0 or (ended.code == 0 and not is_quiet)):
        _tell("could not check whether the container has a GPU: it exited too soon, or has no shell")
    return ended.code if ended.code >= 0 else 128 - ended.code


def _why(engine: Engine, access: Access, ended: Ended) -> str:
    """What the engine's message means, judged with the state of this machine."""
    from gpudoctor import start_failures

    start = start_failures.Start(
        engine="podman" if engine.is_podman else "docker",
        version=engine.version,
        image=ended.command.image,
        mode=access.mode,
        arguments=access.arguments,
        message=ended.refusal,
        code=ended.code,
    )
    return start_failures.text(start_failures.explain(start)).rstrip()


def _tell(line: str) -> None:
    _write(f"gpudoctor: {line}")


def _write(text: str) -> None:
    """Adds carriage returns on a terminal: a program inside may have set it to raw mode."""
    if not text:
        return
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    with contextlib.suppress(OSError):  # the terminal has gone
        text = plain(text.replace("\r\n", "\n"))
        click.echo(text.replace("\n", "\r\n") + "\r" if is_terminal else text, err=True)
