"""Removes the container even if gpudoctor is killed: a small watchdog process waits and cleans up."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click

from gpudoctor import folders
from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.engine.client import Engine
from gpudoctor.errors import WorkError

SCRIPT = Path(__file__).with_name("guard.sh")
LABEL = "gpudoctor.run"
LATE_SECONDS = (0.0, 0.3, 0.7)  # a container may still appear after the command that requested it was killed


@contextlib.contextmanager
def guard(engine: Engine, is_kept: bool = False) -> Iterator[Path]:
    """The file for --cidfile. The container that it names is removed at the end, even if gpudoctor is killed by SIGKILL.

    is_kept: after SIGKILL remove the container only if it has not started yet.
    With the label from `label`, a container is found even if its id was never written.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpudoctor-run-", dir=_where(engine)))
    cidfile = folder / "container"
    read_end, write_end = os.pipe()
    script = SCRIPT.read_text(encoding="utf-8")
    watchdog = subprocess.Popen(
        ["sh", "-c", script, "gpudoctor-guard", engine.program, str(folder), label(cidfile), "created" * is_kept],
        stdin=read_end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    os.close(read_end)
    try:
        yield cidfile
    except BaseException:
        if not read(cidfile):
            remove_late(engine, cidfile)
        raise
    finally:
        is_gone = False
        try:
            container = read(cidfile)
            is_gone = not container or remove(engine, container)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if is_gone:
                with contextlib.suppress(BrokenPipeError):  # the watchdog was killed
                    os.write(write_end, b"done\n")
            os.close(write_end)
            if is_gone:
                watchdog.wait()
            else:  # the watchdog keeps trying
                threading.Thread(target=watchdog.wait, daemon=True).start()


def label(cidfile: Path) -> str:
    return f"{LABEL}={cidfile.parent.name.rpartition('-')[2]}"


def read(cidfile: Path) -> str:
    """The container's id; empty before it is created."""
    try:
        return cidfile.read_text().strip()
    except OSError:
        return ""


def remove(engine: Engine, container: str) -> bool:
    """Returns whether the container is gone; if not, prints how to remove it."""
    with contextlib.suppress(WorkError):
        if engine.remove(container):
            return True
    short = container[:12]
    with contextlib.suppress(OSError):
        click.echo(f"gpudoctor: container {short} could not be removed. Remove it: {engine.program} rm -f {short}", err=True)
    return False


def remove_late(engine: Engine, cidfile: Path) -> None:
    """After the engine's command was killed: also removes a container that appears only now."""
    for seconds in LATE_SECONDS:
        time.sleep(seconds)
        with contextlib.suppress(WorkError):
            found = engines.run(
                engine.argv("ps", "--all", "--quiet", "--filter", f"label={label(cidfile)}"), engines.SECONDS
            ).stdout.split()
            for container in found:
                cidfile.write_text(container)  # if the removal fails, the guard tries again and reports it
                if engine.remove(container):
                    cidfile.unlink()


def _where(engine: Engine) -> Path | None:
    """Docker from a snap has its own /tmp."""
    common = folders.home() / "snap" / "docker" / "common"
    program = shutil.which(engine.program) or ""
    return common if program.startswith("/snap/") and common.is_dir() else None
