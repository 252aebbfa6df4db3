"""What tests may leave behind: containers, unnamed images, networks and volumes of an engine, folders, programs.

A daemon is asked by its socket, not by a command: four questions take milliseconds.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waiting import HOPELESS_SECONDS

SOCKET = "/var/run/docker.sock"
FOLDERS = ("gpudoctor-*", "lab-*")
PROGRAMS = ("gpudoctor-run-", "/lab-")  # in the command lines of what a test or gpudoctor has started
SECONDS = 60.0 if os.environ.get("GPUDOCTOR_TEST_DOCKER") == "required" else 10.0  # what is on its way out may need


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=HOPELESS_SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def of_daemon(path: str = SOCKET, ours: bool = False) -> frozenset[str]:
    """What a daemon has; ours: of its containers, only gpudoctor's and those of the lab's images."""
    if not os.access(path, os.R_OK | os.W_OK):
        return frozenset()
    found = {f"container {_describe(one)}" for one in _ask(path, "/containers/json?all=1") if not ours or _is_ours(one)}
    images = _ask(path, '/images/json?filters={"dangling":["true"]}')
    found |= {f"untagged image {one['Id'][7:19]}" for one in images if not ours or _labels(one)}
    if not ours:
        found |= {f"network {one['Name']}" for one in _ask(path, "/networks")}
        found |= {f"volume {one['Name']}" for one in _ask(path, "/volumes")["Volumes"] or ()}
    return frozenset(found)


def of_machine() -> frozenset[str]:
    """The temporary folders and the programs of gpudoctor and of the lab."""
    folders = {f"folder {path}" for pattern in FOLDERS for path in Path(tempfile.gettempdir()).glob(pattern)}
    return frozenset(folders | set(_programs()))


def of_all() -> frozenset[str]:
    """What is ours on this machine and in its own daemon, if that answers."""
    with contextlib.suppress(OSError):
        return of_machine() | of_daemon(ours=True)
    return of_machine()


def new_since(before: frozenset[str], look: Callable[[], frozenset[str]]) -> list[str]:
    """What is there now and was not before; it gets a moment to go."""
    end = time.monotonic() + SECONDS
    while (new := look() - before) and time.monotonic() < end:
        time.sleep(0.1)
    return sorted(new)


def _ask(path: str, question: str) -> Any:
    connection = _Connection(path)
    try:
        connection.request("GET", question)
        return json.load(connection.getresponse())
    finally:
        connection.close()


def _labels(one: dict[str, Any]) -> list[str]:
    return [name for name in one.get("Labels") or () if name.startswith(("gpudoctor", "io.gpudoctor"))]


def _is_ours(container: dict[str, Any]) -> bool:
    return bool(_labels(container)) or str(container["Image"]).startswith("gpudoctor")


def _describe(container: dict[str, Any]) -> str:
    return f"{container['Names'][0].lstrip('/')} of {container['Image']}: {container['Command'][:80]}"


def _programs() -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if any(name in words for name in PROGRAMS) and folder.name != str(os.getpid()):
            found.append(f"program {folder.name}: {words[:120]}")
    return found
