"""A portable Python for an image without Python: one that uv manages on this machine, or that uv can download."""

from __future__ import annotations

import contextlib
import io
import os
import platform
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpudoctor import folders
from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.engine.client import Engine
from gpudoctor.errors import WorkError

WANTED = "3.12"
INSTALL_SECONDS = 120.0
PATIENCE_SECONDS = 3600.0  # after a failed attempt: without a network each one takes seconds
# Files that the worker never imports, and that would slow down the copy into the container.
LEFT_OUT = re.compile(
    r"""
    /( test | tests | idlelib | tkinter | turtledemo | ensurepip | site-packages | include | share | __pycache__ )(/|$)
    | \.a$
    | /lib(tcl|tk)
    """,
    re.VERBOSE,
)


def find() -> Path | None:
    """The folder of a Python managed by uv, which requires only glibc; None if none is found or can be downloaded."""
    return next(_managed(), None) or (_install() if shutil.which("uv") else None)


def _managed() -> Iterator[Path]:
    """The newest first. Those built with musl cannot load NVIDIA's libraries: https://github.com/astral-sh/python-build-standalone/issues/86"""
    for folder in (os.environ.get("UV_PYTHON_INSTALL_DIR"), _data() / "uv" / "python", _cache()):
        names = Path(folder).glob(f"cpython-3.*-linux-{platform.machine()}-gnu") if folder else ()
        yield from sorted((path for path in names if _version(path) >= (3, 8)), key=_version, reverse=True)


def _version(path: Path) -> tuple[int, ...]:
    found = re.match(r"cpython-(\d+)\.(\d+)\.(\d+)-", path.name)
    return tuple(map(int, found.groups())) if found and (path / "bin" / "python3").exists() else ()


def _install() -> Path | None:
    failed = _cache() / "failed"
    with contextlib.suppress(OSError):
        if time.time() - failed.stat().st_mtime < PATIENCE_SECONDS:
            return None
    argv = ["uv", "python", "install", "--quiet", "--install-dir", str(_cache()), WANTED]
    with contextlib.suppress(OSError, WorkError):
        engines.run(argv, INSTALL_SECONDS)
    found = next(_managed(), None)
    if not found:
        with contextlib.suppress(OSError):
            _cache().mkdir(parents=True, exist_ok=True)
            failed.touch()
    return found


def _data() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or folders.home() / ".local" / "share")


def _cache() -> Path:
    return folders.cache() / "python"


def put(engine: Engine, container: str, python: Path, name: str) -> str:
    """Copies a Python to /NAME in a container; returns the path of its interpreter there, "" if the engine refuses."""
    done = subprocess.run(engine.argv("cp", "-", f"{container}:/"), input=_archive(python, name), capture_output=True)
    return "" if done.returncode else f"/{name}/bin/python3"


def _archive(python: Path, name: str) -> bytes:
    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if LEFT_OUT.search(member.name[len(name) :]):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        return member

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(python.resolve(), name, filter=wanted)
    return data.getvalue()
