"""The caches of earlier containers: how large they are, and removing them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Kept:
    """One cache folder. user: the user in the container. of: "shared" (downloads), or digits of an image's digest.

    size_bytes: allocated on disk, as far as the folder can be read. latest: newest change, seconds since the epoch.
    """

    path: Path
    user: str
    of: str
    size_bytes: int
    latest: float


def found(root: Path) -> list[Kept]:
    """The caches below this folder, the largest first; [] if there are none."""
    kept = [_measured(folder, user.name) for user in _folders(root) for folder in _folders(user)]
    return sorted(kept, key=lambda one: (-one.size_bytes, str(one.path)))


def remove(kept: Kept) -> str:
    """Removes a cache; returns the reason if a part of it cannot be removed, else ""."""
    try:
        shutil.rmtree(kept.path)
    except OSError as failure:
        return f"{failure.filename}: {failure.strerror}"
    return ""


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _measured(folder: Path, user: str) -> Kept:
    sizes, changes = [0], [0.0]
    for about in _everything(folder):
        sizes.append(about.st_blocks * 512)
        changes.append(about.st_mtime)
    return Kept(folder, user, folder.name, sum(sizes), max(changes))


def _everything(folder: Path) -> Iterator[os.stat_result]:
    for parent, _, names in os.walk(folder):
        for path in (parent, *(os.path.join(parent, name) for name in names)):  # noqa: PTH118
            try:
                yield os.lstat(path)
            except OSError:
                continue
