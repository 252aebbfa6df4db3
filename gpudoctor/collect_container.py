"""Examines a container, started from an image or already running, and its host at the same time."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone

from gpudoctor.collect import Progress, collect
from gpudoctor.containers.engine import gpus
from gpudoctor.containers.engine.client import Engine, find
from gpudoctor.containers.engine.guard import guard, read
from gpudoctor.containers.images import catalog, lock, pulling
from gpudoctor.containers.run import command
from gpudoctor.containers.target import portable_python, shell
from gpudoctor.containers.target.inside import Inside
from gpudoctor.containers.target.start import DidNotStart, Started, StartPlan, enter
from gpudoctor.errors import UserError, WorkError
from gpudoctor.interpreter import Target, this_interpreter
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot
from gpudoctor.version import __version__
from gpudoctor.wanted import Request, Wanted
from gpudoctor.worker.probes.cuda import LEFT_ALONE

START, NOT_ASKED = "container-start", "host-not-asked"
OF_THE_PYTHON = ("interpreter", "packages", "torch", "bitsandbytes", "onnxruntime", "conda", "working-folder")
PORTABLE = Reply("missing", None, "the image has no Python; gpudoctor used a portable one")

Examined = tuple[Snapshot, "Target | None"]


def _asked(request: Request) -> tuple[str, ...]:
    """The options that start the same image in the same way."""
    named = (("--engine", request.engine), ("--gpus", request.gpus), ("--gpu-mode", request.gpu_mode))
    chosen = [word for name, value in named if value not in (None, "auto") for word in (name, str(value))]
    return (*chosen, *(word for option in request.docker_options for word in ("--docker-option", option)))


@contextlib.contextmanager
def examined(wanted: Wanted, request: Request, tell: Progress) -> Iterator[Examined]:
    """The snapshot of a container with its host's replies, and the container as a target, valid inside the context.

    If the container does not start, the snapshot is the host's, with the engine's message, and the target is None.
    """
    python = wanted.python or ""
    if re.search(r'["\\\n]', python):
        raise UserError(f"--python {python!r} is not a valid path")
    engine = find(request.engine)
    come_in = _image(engine, request, python, wanted.force) if request.image else _container(engine, request, python)
    with ExitStack() as stack:
        host = HostSide(wanted.timeout if engine.is_local else 0)
        try:
            tell((engine.program,))
            inside, started, container = come_in(stack)
        except DidNotStart as failure:
            yield host.instead_of(failure.started, wanted.expected), None
            return
        if python and not inside.python:
            raise UserError(f"{inside.path} has no Python 3.8+ at {python}")
        replies = _replies(engine, inside, container, wanted.timeout, tell)
        taken = _snapshot({**replies, START: started.reply()}, wanted.expected)
        yield host.added_to(taken), inside if inside.python else None


class HostSide:
    """The host, examined while the container starts; seconds: 0 if the container runs on another machine."""

    def __init__(self, seconds: float) -> None:
        self._taken: Future[Snapshot] = Future()
        # Not an executor's thread: the interpreter would wait for it when the run is interrupted.
        threading.Thread(target=self._collect, args=(seconds,), daemon=True).start()

    def _collect(self, seconds: float) -> None:
        try:
            if not seconds:
                raise WorkError("the container runs on another machine")
            # A gpudoctor process on a GPU would make it look busy from inside.
            alone = {LEFT_ALONE: "left to the container being examined"}
            self._taken.set_result(collect(this_interpreter(), seconds, {}, lambda names: None, alone))
        except BaseException as failure:
            self._taken.set_exception(failure)

    def added_to(self, taken: Snapshot) -> Snapshot:
        """The container's snapshot with the host's replies, or with the reason why they are missing."""
        try:
            return replace(taken, host=self._taken.result().replies)
        except (UserError, WorkError) as failure:
            return replace(taken, replies={**taken.replies, NOT_ASKED: Reply("ok", str(failure))})

    def instead_of(self, start: Started, expected: Mapping[str, int]) -> Snapshot:
        """The snapshot of a container that did not start: only the host's replies."""
        alone = _snapshot({START: start.reply()}, expected)
        together = self.added_to(alone)
        return replace(together, replies={**together.host, **together.replies}, host={})


ComeIn = Callable[[ExitStack], "tuple[Inside, Started, str]"]


def _image(engine: Engine, request: Request, python: str, force: bool) -> ComeIn:
    """Pulled if missing; started as `gpudoctor run` would start it, without this machine's files."""
    image = catalog.resolve(request.image or "", request.registry)
    reference = lock.pinned(image, request.locked)
    about = pulling.ensure(engine, image, reference, force=force)
    access = gpus.access(engine, request.gpus, request.gpu_mode)
    started = Started(
        engine="podman" if engine.is_podman else "docker",
        version=engine.version,
        image=reference,
        mode=access.mode,
        arguments=access.arguments,
        gpus="none" if access.mode == "none" else ",".join(gpus.parse("all" if request.gpus == "auto" else request.gpus).listed),
        asked=_asked(request),
    )
    optional = command.ulimits(engine)
    options = (*access.arguments, *command.shared_memory(engine), *request.docker_options)

    def come_in(stack: ExitStack) -> tuple[Inside, Started, str]:
        cidfile = stack.enter_context(guard(engine))
        entrypoint = tuple((about.get("Config") or {}).get("Entrypoint") or ())
        inside, how = StartPlan(engine, started, entrypoint, options, optional, python).start(stack, cidfile)
        return inside, how, read(cidfile)

    return come_in


def _container(engine: Engine, request: Request, python: str) -> ComeIn:
    about = engine.container(request.container or "")
    return lambda stack: (*enter(stack, engine, about, python), "")


def _replies(engine: Engine, inside: Inside, container: str, seconds: float, tell: Progress) -> dict[str, Reply]:
    """With the container's Python; else with a portable one that is copied into it; else with its shell."""
    is_portable = False
    if not inside.has_ctypes and not inside.broken and container and (python := portable_python.find()):
        path = portable_python.put(engine, container, python, f"gpudoctor-{inside.marker}")
        is_portable = bool(path) and inside.use(path)
    if not inside.python:
        return shell.replies(inside)
    replies = collect(inside, seconds, {}, tell).replies
    return {**replies, **dict.fromkeys(OF_THE_PYTHON, PORTABLE)} if is_portable else replies


def _snapshot(replies: Mapping[str, Reply], expected: Mapping[str, int]) -> Snapshot:
    taken = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Snapshot(SNAPSHOT_SCHEMA, __version__, taken, dict(replies), dict(expected))
