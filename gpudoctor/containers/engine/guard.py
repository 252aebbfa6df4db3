"""No container is left, whatever becomes of gpudoctor: a tiny process waits beside it, and tidies up if it is killed."""

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

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.engine.client import Engine
from gpudoctor.errors import WorkError

SCRIPT = Path(__file__).with_name("guard.sh")
LABEL = "gpudoctor.run"
LATE_SECONDS = (0.0, 0.3, 0.7)  # a container may still come after the command that asked for it was killed


@contextlib.contextmanager
def guard(engine: Engine, is_kept: bool = False) -> Iterator[Path]:
    """The file for --cidfile; the container that it names is removed at the end, also if gpudoctor dies by SIGKILL.

    is_kept: in that case only a container that had not started yet.
    The label that `label` makes of it lets even a container be found whose id was never written.
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
                with contextlib.suppress(BrokenPipeError):  # somebody killed it
                    os.write(write_end, b"done\n")
            os.close(write_end)
            if is_gone:
                watchdog.wait()
            else:  # it goes on trying
                threading.Thread(target=watchdog.wait, daemon=True).start()


def label(cidfile: Path) -> str:
    return f"{LABEL}={cidfile.parent.name.rpartition('-')[2]}"


def read(cidfile: Path) -> str:
    """The container's id; empty before it was made."""
    try:
        return cidfile.read_text().strip()
    except OSError:
        return ""


def remove(engine: Engine, container: str) -> bool:
    """Whether it is gone; if not, a person is told how to remove it."""
    with contextlib.suppress(WorkError):
        if engine.remove(container):
            return True
    short = container[:12]
    with contextlib.suppress(OSError):
        click.echo(f"gpudoctor: container {short} could not be removed: {engine.program} rm -f {short}", err=True)
    return False


def remove_late(engine: Engine, cidfile: Path) -> None:
    """After the engine's command was killed: also what comes to be only now."""
    for seconds in LATE_SECONDS:
        time.sleep(seconds)
        with contextlib.suppress(WorkError):
            found = engines.run(
                engine.argv("ps", "--all", "--quiet", "--filter", f"label={label(cidfile)}"), engines.SECONDS
            ).stdout.split()
            for container in found:
                cidfile.write_text(container)  # unless it goes, the guard tries again and says so
                if engine.remove(container):
                    cidfile.unlink()


def _where(engine: Engine) -> Path | None:
    """Docker from a snap has a /tmp of its own."""
    common = Path.home() / "snap" / "docker" / "common"
    program = shutil.which(engine.program) or ""
    return common if program.startswith("/snap/") and common.is_dir() else None
