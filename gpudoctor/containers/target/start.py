"""Enters a container: starts one from an image, through the image's own entrypoint, or attaches to a running one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.engine import rlimits
from gpudoctor.containers.engine.client import Engine
from gpudoctor.containers.engine.guard import label, read
from gpudoctor.containers.target.inside import Inside, NotStarted, attached, new_marker, shell
from gpudoctor.errors import UserError, WorkError
from gpudoctor.model import Reply

EXECUTE_SECONDS = 5.0
# Entrypoints that run the command they are given. Others would treat it as arguments of their program.
HANDS_OVER = re.compile(
    r"""
    (^|/)
    ( [\w.-]*entrypoint[\w.-]* | [\w.-]+\.sh | tini | dumb-init | docker-init | catatonit | env )$
    """,
    re.VERBOSE,
)
SAID_BY_ENGINE = re.compile(r"^(docker|podman|Error): |Error response from daemon|OCI runtime", re.MULTILINE)
MISUSED = re.compile(
    r"""
    ^(
        unknown\ (shorthand\ )?flag
        | invalid\ argument
        | flag\ needs\ an\ argument
        | Error:\ unknown\ (shorthand\ )?flag
    )
    """,
    re.MULTILINE | re.VERBOSE,
)
NO_SHELL = re.compile(
    r"""
    exec:?\ "?sh"?:?\ executable\ file\ not\ found
    | starting\ container\ process\ caused.*"sh":\ executable
    """,
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class Started:
    """How a container started, or failed to: the reply `container-start` of a snapshot.

    asked: the options of `gpudoctor check` that started it. arguments: the engine options that request GPUs. gpus: the requested
    GPUs. replaced: the image's entrypoint, if it was replaced.
    entrypoint_failed: the entrypoint's output, if it exited before it ran the command.
    """

    engine: str
    version: str
    image: str
    mode: str
    arguments: tuple[str, ...] = ()
    gpus: str = "all"
    container: str = ""
    replaced: str = ""
    entrypoint_failed: str = ""
    started: bool = True
    message: str = ""
    code: int | None = None
    asked: tuple[str, ...] = ()

    def reply(self) -> Reply:
        return Reply("ok", {**vars(self), "arguments": list(self.arguments), "asked": list(self.asked)})


class DidNotStart(Exception):
    """The engine refused, or the container exited before it reached gpudoctor's shell."""

    def __init__(self, started: Started, failure: NotStarted) -> None:
        super().__init__(failure.message)
        self.started = replace(started, started=False, message=failure.message, code=failure.code)


@dataclass(frozen=True)
class StartPlan:
    """An image to start. options: all options of `run`."""

    engine: Engine
    started: Started
    entrypoint: tuple[str, ...]
    options: tuple[str, ...]
    optional: tuple[str, ...]  # options to omit if the engine cannot grant them
    python: str

    def start(self, stack: ExitStack, cidfile: Path) -> tuple[Inside, Started]:
        """Starts it; on failure retries without the optional options, and at last without the entrypoint."""
        kept = self.optional
        replaced = "" if not self.entrypoint or HANDS_OVER.search(self.entrypoint[0]) else " ".join(self.entrypoint)
        failed = ""
        while True:
            started = replace(self.started, replaced=replaced, entrypoint_failed=failed)
            try:
                return self._attach(stack, cidfile, kept, bool(replaced)), started
            except NotStarted as failure:
                if MISUSED.search(failure.message):
                    raise UserError(engines.with_words(f"{self.engine.program} run refused an option", failure.message)) from None
                if NO_SHELL.search(failure.message):
                    raise WorkError(f"{started.image} has no shell (sh), which gpudoctor requires to examine it") from None
                if kept and rlimits.blamed(failure.message):
                    kept = ()
                elif self.entrypoint and not replaced and not SAID_BY_ENGINE.search(failure.message):
                    replaced, failed = " ".join(self.entrypoint), failure.message
                else:
                    raise DidNotStart(started, failure) from None
                cidfile.unlink(missing_ok=True)

    def _attach(self, stack: ExitStack, cidfile: Path, optional: tuple[str, ...], without_entrypoint: bool) -> Inside:
        marker = new_marker()
        command = shell(marker, self.python)
        how = ["--entrypoint=sh", self.started.image] if without_entrypoint else [self.started.image, "sh"]
        ours = ("--rm", "--interactive", f"--cidfile={cidfile}", f"--label={label(cidfile)}")
        argv = self.engine.argv("run", *ours, *optional, *self.options, *how, *command)

        def run_script(script: str) -> None:
            execute(self.engine, read(cidfile), script)

        return stack.enter_context(attached(f"image {self.started.image}", argv, marker, run_script))


def enter(stack: ExitStack, engine: Engine, about: Mapping[str, Any], python: str) -> tuple[Inside, Started]:
    """Attaches to a running container. about: the output of `container inspect`."""
    name, state = str(about["Name"]).lstrip("/"), about["State"]
    if obstacle := not_entered(engine.program, name, state):
        raise UserError(obstacle)
    mode, gpus, arguments = requested(about)
    started = Started(
        engine="podman" if engine.is_podman else "docker",
        version=engine.version,
        image=str(about["Config"].get("Image", "")),
        mode=mode,
        arguments=arguments,
        gpus=gpus,
        container=name,
    )
    marker = new_marker()
    argv = engine.argv("exec", "--interactive", about["Id"], "sh", *shell(marker, python, adopt=True))
    try:
        inside = stack.enter_context(attached(f"container {name}", argv, marker, partial(execute, engine, about["Id"])))
    except NotStarted as failure:
        words = failure.message.strip().replace("\n", "\n  ")
        raise WorkError(f"gpudoctor cannot examine container {name}, which must have a shell (sh)\n  {words}") from None
    return inside, started


def not_entered(program: str, name: str, state: Mapping[str, Any]) -> str:
    """Why a container cannot be entered, and what to do first; "" if it runs."""
    if state.get("Paused"):
        return f"container {name} is paused. Unpause it ({program} unpause {name}) and try again"
    if state.get("Restarting"):
        return f"container {name} keeps exiting and restarting. For the reason: {program} logs --tail 50 {name}"
    if not state.get("Running"):
        status = state.get("Status") or "unknown"
        return f"container {name} is not running (status: {status}). Start it ({program} start {name}) and try again"
    return ""


def requested(about: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """The mode of a container's GPU request, the requested GPUs, and the arguments of the request."""
    host = about.get("HostConfig", {})
    variables = dict(pair.partition("=")[::2] for pair in about["Config"].get("Env") or ())
    visible = variables.get("NVIDIA_VISIBLE_DEVICES", "")
    for request in host.get("DeviceRequests") or ():
        ids, count = request.get("DeviceIDs") or (), request.get("Count")
        if request.get("Driver") == "cdi":
            names = [name.rpartition("=")[2] for name in ids]
            return "cdi", "all" if "all" in names else ",".join(names), tuple(f"--device={name}" for name in ids)
        wanted = ",".join(ids) or ("all" if count == -1 else ",".join(map(str, range(count or 0))))
        return "gpus", wanted, ("--gpus", wanted)
    if host.get("Runtime") == "nvidia":
        return "runtime", visible or "none", ("--runtime=nvidia",)
    devices = [device.get("PathOnHost", "") for device in host.get("Devices") or ()]
    given = tuple(f"--device={path}" for path in devices if "nvidia" in path or "dxg" in path)
    if given or host.get("Privileged"):
        return "devices", "all" if host.get("Privileged") else "some", given or ("--privileged",)
    return "none", "none", ()


def execute(engine: Engine, container: str, script: str) -> None:
    """Runs a script with a separate shell in the container; ignores a failure, as the container may be gone."""
    with contextlib.suppress(WorkError):
        engines.run(engine.argv("exec", container, "sh", "-c", script), EXECUTE_SECONDS)
