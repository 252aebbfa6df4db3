"""Starts a container that goes on without a terminal."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.containers.engine.client import Engine
from gpudoctor.containers.engine.gpus import Access
from gpudoctor.containers.engine.streams import is_exact
from gpudoctor.containers.run import command
from gpudoctor.containers.run.caller import Place
from gpudoctor.containers.run.command import Command, Options
from gpudoctor.containers.run.running import Ended, Tell


def build(engine: Engine, image: str, about: Mapping[str, Any], access: Access, options: Options, place: Place) -> Command:
    """As command.build, without this terminal and its input."""
    built = command.build(engine, image, about, access, options, replace(place, has_terminal=False, has_input=False))
    return replace(built, options=("--detach", *built.options))


def start(engine: Engine, built: Command, tell: Tell) -> Ended:
    """Returns when the engine has started the container, whose id is `detached`; retries without the options that it refuses."""
    done = _run(built)
    spared = built.spared(done.stderr)
    if done.returncode and spared != built and is_exact(done.stderr):
        tell(f"{engine.name} refused {built.less(spared)}: starting without it")
        built, done = spared, _run(spared)
    if done.returncode:
        return Ended(built, done.returncode, done.stderr.strip())
    return Ended(built, 0, detached=done.stdout.strip()[:12])


def _run(built: Command) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **built.environment}
    return subprocess.run(
        built.argv(), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
