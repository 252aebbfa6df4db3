"""Where a command runs, and what to examine there."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.images import catalog, lock, pulling
from gpudoctor.containers.target.start import not_entered
from gpudoctor.errors import UserError
from gpudoctor.trying import command
from gpudoctor.trying.inside import NewContainer, RunningContainer
from gpudoctor.trying.laboratory import Place, ThisMachine
from gpudoctor.wanted import Request, Wanted


def of(argv: Sequence[str], python: str | None, request: Request) -> tuple[Place, Wanted]:
    """The command's place, and a quick check of it with the command's own Python, as far as that is known.

    python: the one that the user names. UserError if the command, the container or the image cannot be used, WorkError if the
    engine cannot.
    """
    if request.image or request.container:
        return _inside(tuple(argv), request), Wanted("quick", python=python, inside=request)
    words, variables = command.unwrapped(argv, os.environ)
    own = command.python_of(words, variables)
    return ThisMachine(words, variables), Wanted("quick", python=python or own)


def _inside(argv: tuple[str, ...], request: Request) -> Place:
    """UserError or WorkError if the container or the image cannot be used."""
    engine = engines.find(request.engine)
    if request.container:
        about = engine.container(request.container)
        name = str(about["Name"]).lstrip("/")
        if obstacle := not_entered(engine.program, name, about["State"]):
            raise UserError(obstacle)
        return RunningContainer(argv, engine, str(about["Id"]))
    image = catalog.resolve(request.image or "", request.registry)
    reference = lock.pinned(image, request.locked)
    about = pulling.ensure(engine, image, reference, force=False)
    return NewContainer(argv, engine, reference, about, request.gpus, request.gpu_mode, request.docker_options)
