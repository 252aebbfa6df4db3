"""Pulls an image, after checking that it would run here and that there is enough disk space."""

from __future__ import annotations

import shutil
import subprocess
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor import screen
from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.images import ending, registry
from gpudoctor.containers.images import reference as references
from gpudoctor.errors import UserError, WorkError

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine
    from gpudoctor.containers.images.catalog import Image

STDERR = 2
UNPACKED = 3  # times the compressed size: for a while both compressed and unpacked data are on disk


def ensure(engine: Engine, image: Image, reference: str, *, force: bool = False) -> dict[str, Any]:
    """The output of `image inspect`; the image is pulled first if it is not present. reference: from `lock.pinned`."""
    found = engine.image(reference)
    if found is None and image.recipe is not None:
        raise UserError(f"{image.name} is built here, not pulled, and is not built yet: gpudoctor images build {image.name}")
    return found or pull(engine, image, reference, force=force)


def pull(engine: Engine, image: Image, reference: str, *, force: bool = False) -> dict[str, Any]:
    """Always pulls, because a tag may have moved. UserError, unless `force`, if it cannot run or the disk space is too small."""
    found = obstacles(engine, image, reference)
    if found and not force:
        raise UserError("\n".join([f"{found[0]} (--force pulls it anyway)", *(f"  {more}" for more in found[1:])]))
    for obstacle in found:
        _tell(f"Warning: {obstacle}")
    _run(engine, reference)
    pulled = engine.image(reference)
    if pulled is None:
        raise WorkError(f"{engine.program} pulled {reference}, but does not list it: another program may be removing images")
    return pulled


def digest(found: dict[str, Any], reference: str) -> str:
    """The reference with digest of a present image, in the requested repository."""
    names = [str(name) for name in found.get("RepoDigests") or ()]
    repository = references.parse(reference)
    mine = [name for name in names if references.parse(name).name == repository.name]
    return (mine or names or [str(found.get("Id", ""))])[0]


def obstacles(engine: Engine, image: Image, reference: str) -> list[str]:
    """Reasons not to pull an image. UserError if its registry has no such image."""
    try:
        remote = registry.look(reference, engine)
    except WorkError as failure:
        # The engine may reach the registry through its own proxy or mirror. If not, its message is the one to show.
        _tell(f"Could not check the image before the pull: {str(failure).splitlines()[0]}")
        return _gpu(engine, image, image.needs)
    from gpudoctor.containers.images import preflight

    found = _gpu(engine, image, preflight.needs_of(remote.config, image.needs))
    there = engine.image(reference) or {}
    is_current = any(str(name).endswith(f"@{remote.digest}") for name in there.get("RepoDigests") or ())
    return found if is_current else [*found, *room(engine, remote.size_bytes)]


def _gpu(engine: Engine, image: Image, needs: Any) -> list[str]:
    """Why this machine's driver and GPUs cannot run it; empty if they can, or if containers run on another machine."""
    from gpudoctor.containers.images import preflight

    if not engine.is_local:
        return []
    verdict = preflight.verdict(needs, preflight.this_machine())
    return [f"{image.name} does not run here: {verdict.why}"] if verdict.runs == "no" else []


def room(engine: Engine, size_bytes: int) -> list[str]:
    """Why the disk space is too small; empty if it is large enough or unknown, as on another machine."""
    folder = engine.info.get("DockerRootDir") or (engine.info.get("store") or {}).get("graphRoot")
    if not engine.is_local or not folder or not Path(folder).is_dir():
        return []
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError:
        return []
    said = f"{gigabytes(free_bytes)} free in {folder}, up to {gigabytes(size_bytes)} to download, compressed"
    if free_bytes < size_bytes:
        return [f"not enough disk space: {said}; {engine.program} system df shows what can be removed"]
    if free_bytes < size_bytes * UNPACKED:
        _tell(f"Warning: disk space may run out: {said}; unpacked it is two to three times as large")
    return []


def gigabytes(size_bytes: int) -> str:
    """A size in GB, or in MB or kB if it is smaller."""
    if size_bytes >= 1e8:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e5 else f"{size_bytes / 1e3:.1f} kB"


def _run(engine: Engine, reference: str) -> None:
    """Sends all of the engine's progress to stderr, so that stdout contains only the result."""
    words: deque[str] = deque(maxlen=engines.MOST_LINES)
    stdout = subprocess.DEVNULL if engine.is_podman else STDERR
    with ending.started(engine.argv("pull", reference), stdout=stdout, stderr=subprocess.PIPE) as pulling:
        for line in ending.lines(pulling.stderr):
            if engine.is_podman and not line.startswith("Error"):
                _tell(line.rstrip())
            else:
                words.append(line)
    if pulling.returncode:
        raise engines.error(engine.program, "".join(words))


def _tell(line: str) -> None:
    screen.note(line)
