"""Builds the `docker run` command that is executed and shown, from the options, the engine, the image and the machine.

Pure: nothing is queried or changed here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor.containers.engine import gpus, rlimits
from gpudoctor.containers.run import caches, mounts, private, profiles, users
from gpudoctor.containers.run.options import Options as Options
from gpudoctor.containers.run.words import each, pairs

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine
    from gpudoctor.containers.engine.gpus import Access
    from gpudoctor.containers.run.caller import Place

MOST_SHARED_BYTES = 16 << 30
WIDTH = 78
SHELLS = ("bash", "sh", "zsh", "fish", "ash", "dash", "ksh")
BEST_SHELL = "command -v bash >/dev/null && exec bash; exec sh"
NO_INIT = re.compile(
    r"""
    "docker-init":\ executable\ file\ not\ found
    | unable\ to\ find\ init\ binary
    | container-init\ binary\ not\ found
    """,
    re.VERBOSE,
)
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"


@dataclass(frozen=True)
class Command:
    """A command of the engine. notes: hints for the user; caches: folders that must exist before the start.

    environment: variables for the engine's command, which copies the values of `-e NAME` from there.
    """

    program: str
    options: tuple[str, ...]
    image: str
    command: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    caches: caches.Caches | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_terminal(self) -> bool:
        return "-it" in self.options and "--tty=false" not in self.options

    @property
    def is_kept(self) -> bool:
        """Whether the container is kept when it exits: of several --rm the last one wins."""
        said = [word.partition("=")[2] for word in self.options if word.partition("=")[0] == "--rm"]
        return not said or said[-1].lower() in ("false", "f", "0")

    def argv(self, *more: str) -> list[str]:
        return [self.program, "run", *more, *self.options, self.image, *self.command]

    def spared(self, message: str) -> Command:
        """Without those of gpudoctor's options that the engine refused with this message."""
        spared = self
        for name in rlimits.blamed(message):
            spared = spared.without("--ulimit", f"{name}={rlimits.WANTED[name]}")
        return spared.without("--init") if NO_INIT.search(message) else spared

    def without(self, *words: str) -> Command:
        """Without one option: a word, or a word and its value."""
        places = range(len(self.options) - len(words) + 1)
        at = next((place for place in places if self.options[place : place + len(words)] == words), None)
        return self if at is None else replace(self, options=self.options[:at] + self.options[at + len(words) :])

    def less(self, other: Command) -> str:
        """The options that the other command lacks."""
        return " ".join(shlex.join(pair) for pair in pairs(self.options) if pair not in [*pairs(other.options)])

    def shown(self) -> str:
        """For pasting into a shell, wrapped to WIDTH, without secrets; an option and its value stay on one line."""
        pieces = [private.shown(piece) for piece in pairs(self.options)]
        last = private.shown([self.image, *self.command])
        lines = [f"{self.program} run"]
        for piece in pieces:
            if len(lines[-1]) + 1 + len(piece) + 2 > WIDTH:
                lines.append("   ")
            lines[-1] += " " + piece
        if len(lines) > 1 or len(lines[0]) + 1 + len(last) > WIDTH:
            lines.append("   ")
        lines[-1] += " " + last
        return " \\\n".join(lines)


def build(engine: Engine, image: str, about: Mapping[str, Any], access: Access, options: Options, place: Place) -> Command:
    """about: the output of `image inspect`; empty if the image is not present."""
    config = about.get("Config") or {}
    profile = profiles.of(options.profiles)
    user = users.of(options.user, engine, place)
    kept = mounts.kept(engine, about, place, user.name) if options.cache else None
    has_entrypoint = any(word.partition("=")[0] == "--entrypoint" for word in options.docker_options)
    entrypoint, command = ((), options.command) if has_entrypoint else _started(config, options.command)
    given = {pair.partition("=")[0] for pair in options.env}
    ours = {**(caches.variables() if kept else {}), **user.variables(bool(kept)), **_capabilities(access)}
    set_by_image = {pair.partition("=")[0] for pair in config.get("Env") or ()} - set(user.variables(False))
    words = [
        *(() if options.keep else ("--rm",)),
        "--init",
        *_streams(place),
        *access.arguments,
        *_shared_memory(engine, options, profile),
        *_ulimits(options, place),
        *each("--cap-add", (*profile.capabilities, *(profile.device_capabilities if place.devices else ()))),
        *each("--device", place.devices),
        *user.arguments,
        *mounts.arguments(engine, options, place, kept),
        *each("-e", (f"{name}={value}" for name, value in ours.items() if name not in given | set_by_image)),
        *each("-p", (*_unless_published(profile.ports, options.ports), *options.ports)),
        *_labels(engine, access),
        *entrypoint,
        *_given(options),
    ]
    arguments, environment = private.passed_on(words)
    notes = tuple(_notes(engine, options, place, entrypoint))
    return Command(engine.program, arguments, image, command, notes, kept, environment)


def shared_memory(engine: Engine) -> tuple[str, ...]:
    """Half of the memory, at most 16 GiB: the default of 64 MB is too small for data loader workers and for NCCL."""
    size_bytes = min(engine.memory_bytes // 2, MOST_SHARED_BYTES)
    return ("--shm-size", f"{size_bytes >> 30}g" if size_bytes >= 2 << 30 else f"{size_bytes >> 20}m") if size_bytes else ()


def ulimits(engine: Engine) -> tuple[str, ...]:
    """The limits that this engine can raise, as far as that is known before the start."""
    return _default_ulimits(rlimits.refused(engine))


def _default_ulimits(less: Iterable[str]) -> tuple[str, ...]:
    return tuple(each("--ulimit", (f"{name}={value}" for name, value in rlimits.WANTED.items() if name not in less)))


def _streams(place: Place) -> tuple[str, ...]:
    return ("-it",) if place.has_terminal else ("-i",) * place.has_input


def _shared_memory(engine: Engine, options: Options, profile: profiles.Profile) -> tuple[str, ...]:
    """With another IPC mode, no size is set."""
    ipc = options.ipc or ("" if options.shm_size else profile.ipc)
    if ipc:
        return "--ipc", ipc
    return ("--shm-size", options.shm_size) if options.shm_size else shared_memory(engine)


def _ulimits(options: Options, place: Place) -> tuple[str, ...]:
    if "none" in options.ulimits:
        return ()
    given = {limit.partition("=")[0] for limit in options.ulimits}
    return _default_ulimits(given | set(place.refused_ulimits)) + tuple(each("--ulimit", options.ulimits))


def _capabilities(access: Access) -> dict[str, str]:
    """The parts of the driver to mount, for an image that does not set them; with CDI all of them are mounted."""
    return {CAPABILITIES: "compute,utility"} if access.mode in ("runtime", "gpus") else {}


def _unless_published(ports: Iterable[str], given: Iterable[str]) -> tuple[str, ...]:
    inside = {port.rpartition(":")[2].partition("/")[0] for port in given}
    return tuple(port for port in ports if port.rpartition(":")[2] not in inside)


def _labels(engine: Engine, access: Access) -> tuple[str, ...]:
    """SELinux also blocks a container's access to mounted folders."""
    return (gpus.NO_LABELS,) if engine.has_selinux and gpus.NO_LABELS not in access.arguments else ()


def _given(options: Options) -> Iterator[str]:
    yield from each("-v", (re.sub(r"^\.{1,2}(?=[/:])", lambda dots: str(Path(dots[0]).resolve()), it) for it in options.volumes))
    yield from each("-e", options.env)
    for option, value in (("--name", options.name), ("--network", options.network)):
        yield from (option, value) if value else ()
    yield from options.docker_options


def _started(config: Mapping[str, Any], command: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The entrypoint to set, and the command; without a command, a shell: that of the image, else bash or sh."""
    if command:
        return (), command
    entrypoint, own = config.get("Entrypoint") or [], config.get("Cmd") or []
    if _is_shell(own if not entrypoint or _hands_over(entrypoint[0]) else [*entrypoint, *own]):
        return (), ()
    if entrypoint and not _hands_over(entrypoint[0]):
        return ("--entrypoint", "sh"), ("-c", BEST_SHELL)
    return (), ("sh", "-c", BEST_SHELL)


def _is_shell(command: Sequence[str]) -> bool:
    return bool(command) and Path(command[0]).name in SHELLS and all(word in ("-l", "-i", "--login") for word in command[1:])


def _hands_over(entrypoint: str) -> bool:
    from gpudoctor.containers.target.start import HANDS_OVER

    return bool(HANDS_OVER.search(entrypoint))


def _notes(engine: Engine, options: Options, place: Place, entrypoint: tuple[str, ...]) -> Iterator[str]:
    if not engine.is_local and (options.mount or options.cache):
        yield "the daemon runs on another machine, so the current folder and the caches are not mounted"
    elif options.mount and place.folder in (None, Path("/")):
        yield f"the current folder {'is /' if place.folder else 'does not exist'}, so it is not mounted"
    if "multi-gpu" in options.profiles and (refused := place.refused_ulimits):
        yield f"{engine.name} cannot raise {' and '.join(refused)} on this machine; NCCL and RDMA may need more"
    if entrypoint:
        yield "no command given: starting a shell instead of the image's own program (to run a program, name it after --)"
