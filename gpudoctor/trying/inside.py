"""Runs a command in a container: a running one, or a new one for each run, as `gpudoctor run` would start it."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpudoctor.containers.engine import gpus
from gpudoctor.containers.engine.client import Engine
from gpudoctor.containers.engine.guard import guard, label
from gpudoctor.containers.run import caller
from gpudoctor.containers.run import command as commands
from gpudoctor.containers.target.inside import CLEAN, new_marker
from gpudoctor.containers.target.start import execute
from gpudoctor.judging.experiments.change import change
from gpudoctor.judging.experiments.suspect import Surroundings, Suspect
from gpudoctor.trying.start import Start

LETTERS = {"open_files": "n", "processes": "u", "memlock": "l", "address_space": "v", "stack": "s"}
FRESH = """
for place in /var/tmp /dev/shm /tmp; do
  case {replaced} in *":$place:"*) continue ;; esac
  fresh=$place/gpudoctor-{marker}
  mkdir -p "$fresh" 2>/dev/null && break
done
"""


@dataclass(frozen=True)
class RunningContainer:
    argv: tuple[str, ...]
    engine: Engine
    id: str
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

    @contextlib.contextmanager
    def started(self, away: Sequence[Suspect], surroundings: Surroundings, has_terminal: bool) -> Iterator[Start]:
        marker = new_marker()
        terminal = ("--tty",) if has_terminal else ()
        how = ("exec", "--interactive", *terminal, "--env", f"GPUDOCTOR_JOB={marker}", self.id)
        try:
            yield Start(tuple(self.engine.argv(*how, *changed(self.argv, away, surroundings, marker))), self.variables)
        finally:
            folders = " ".join(f"{place}/gpudoctor-{marker}" for place in ("/var/tmp", "/dev/shm", "/tmp"))
            execute(self.engine, self.id, CLEAN.format(marker=marker, folder=folders))


@dataclass(frozen=True)
class NewContainer:
    """about: the output of `image inspect`. gpus, gpu_mode: how it gets its GPUs."""

    argv: tuple[str, ...]
    engine: Engine
    reference: str
    about: Mapping[str, Any] = field(repr=False)
    gpus: str
    gpu_mode: str
    docker_options: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)

    @contextlib.contextmanager
    def started(self, away: Sequence[Suspect], surroundings: Surroundings, has_terminal: bool) -> Iterator[Start]:
        inner = changed(self.argv, away, surroundings, new_marker()) if away else list(self.argv)
        access = gpus.access(self.engine, self.gpus, self.gpu_mode)
        chosen = commands.Options(command=tuple(inner), docker_options=self.docker_options, cache=False)
        here = replace(caller.here(self.engine), has_terminal=has_terminal and os.isatty(1), has_input=True)
        built = commands.build(self.engine, self.reference, self.about, access, chosen, here)
        with guard(self.engine) as cidfile:
            argv = built.argv("--cidfile", str(cidfile), "--label", label(cidfile))
            yield Start(tuple(argv), {**self.variables, **built.environment})


def changed(argv: Sequence[str], away: Sequence[Suspect], surroundings: Surroundings, marker: str) -> list[str]:
    """The command after a shell in the container has taken the suspects away."""
    if not away:
        return [*argv]
    different = change(away, surroundings)
    lines = [f"unset {name}" for name in different.unset]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in different.put.items()]
    if different.fresh:
        replaced = shlex.quote(":" + ":".join(different.fresh.values()) + ":")
        lines.append(FRESH.format(replaced=replaced, marker=marker))
    lines += [f'mkdir -p "$fresh/{name}"; export {name}="$fresh/{name}"' for name in different.fresh]
    letters = [LETTERS[name] for name in different.raised if name in LETTERS]
    lines += [f"ulimit -S -{letter} $(ulimit -H -{letter})" for letter in letters]
    return ["sh", "-c", "\n".join((*lines, 'exec "$@"')), "gpudoctor", *argv]
