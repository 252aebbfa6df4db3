"""The environment of `gpudoctor run`: folder, user, terminal, devices. Read once, then passed on."""

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
    """What the command for a container depends on, besides the engine. folder, cache: None if not available.

    groups: ids of the user's groups, and of the groups that can use the GPUs' nodes. refused_ulimits: limits that the engine
    certainly cannot raise.
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
    """devices: candidates; the result contains those that exist."""
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
        return None  # the folder was removed or is not readable


def _cache() -> Path | None:
    """None if the user has no home, or if the configured folder is a relative path."""
    try:
        cache = folders.cache()
    except folders.NoHome:
        return None
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
