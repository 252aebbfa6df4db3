"""Where `gpudoctor run` is typed: the folder, the user, the terminal, what this machine has. Read once, then passed on."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import folders
from gpudoctor.containers.engine import rlimits

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine

GROUPS = ("video", "render")
NODES = ("dev/nvidia*", "dev/dri/*", "dev/dxg", "dev/nvhost-*", "dev/nvmap", "dev/infiniband/*", "dev/kfd")


@dataclass(frozen=True)
class Place:
    """What a command for a container depends on beside the engine. folder, cache: None where there is none to be had.

    groups: ids of the user's own, and of those that may use the GPUs' nodes. refused_ulimits: what the engine may certainly
    not raise.
    """

    folder: Path | None = None
    cache: Path | None = None
    uid: int = 0
    gid: int = 0
    user: str = "root"
    groups: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    refused_ulimits: tuple[str, ...] = ()
    has_input: bool = True
    has_terminal: bool = False


def here(engine: Engine, devices: tuple[str, ...] = ()) -> Place:
    """devices: of these, those that are there are in the answer."""
    return Place(
        folder=_folder(),
        cache=_cache(),
        uid=os.getuid(),
        gid=os.getgid(),
        user=_name(),
        groups=tuple(sorted(_groups())),
        devices=tuple(device for device in devices if Path(device).exists()),
        refused_ulimits=rlimits.refused(engine),
        has_input=sys.stdin is not None,
        has_terminal=all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)),
    )


def _folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:
        return None  # it was removed, or may not be read


def _cache() -> Path | None:
    """None where the user has no home, or names a folder that depends on where a command is typed."""
    cache = folders.cache()
    return cache / "containers" if cache.is_absolute() else None


def _name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER") or "user"


def _groups() -> set[int]:
    found = {path.stat().st_gid for pattern in NODES for path in Path("/").glob(pattern) if not path.is_dir()}
    for name in GROUPS:
        with contextlib.suppress(KeyError):
            found.add(grp.getgrnam(name).gr_gid)
    return {*found, *os.getgroups()} - {0, os.getgid()}
