"""Pulls an image, after a look at whether it would run here and has room: before gigabytes are moved, not after."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.images import ending, registry
from gpudoctor.containers.images import reference as references
from gpudoctor.errors import UserError, WorkError

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine
    from gpudoctor.containers.images.catalog import Image

STDERR = 2
UNPACKED = 3  # times the compressed size: that, and what comes out of it, lie side by side for a while


def ensure(engine: Engine, image: Image, reference: str, *, force: bool = False) -> dict[str, Any]:
    """What `image inspect` says; the image is pulled first where it is not there. reference: as `lock.pinned` gives it."""
    found = engine.image(reference)
    if found is None and image.recipe is not None:
        raise UserError(f"{image.name} is built here, not pulled, and was not built yet: gpudoctor images build {image.name}")
    return found or pull(engine, image, reference, force=force)


def pull(engine: Engine, image: Image, reference: str, *, force: bool = False) -> dict[str, Any]:
    """Pulls in any case: a tag may have moved. UserError, unless `force`, for what could not run or has no room."""
    found = obstacles(engine, image, reference)
    if found and not force:
        raise UserError("\n".join([f"{found[0]} (--force pulls it all the same)", *(f"  {more}" for more in found[1:])]))
    for obstacle in found:
        _tell(f"Warning: {obstacle}")
    _run(engine, reference)
    pulled = engine.image(reference)
    if pulled is None:
        raise WorkError(f"{engine.program} pulled {reference}, and now does not have it: is something removing images?")
    return pulled


def digest(found: dict[str, Any], reference: str) -> str:
    """The reference by digest of an image that is there, in the repository it was asked for from."""
    names = [str(name) for name in found.get("RepoDigests") or ()]
    repository = references.parse(reference)
    mine = [name for name in names if references.parse(name).name == repository.name]
    return (mine or names or [str(found.get("Id", ""))])[0]


def obstacles(engine: Engine, image: Image, reference: str) -> list[str]:
    """Why an image need not be pulled. UserError where its registry has no such image."""
    try:
        remote = registry.look(reference, engine)
    except WorkError as failure:
        # The engine may get there another way, by its own proxy or mirror. If it does not, its words are the ones to show.
        _tell(f"Not looked at before the pull: {str(failure).splitlines()[0]}")
        return _gpu(engine, image, image.needs)
    from gpudoctor.containers.images import preflight

    found = _gpu(engine, image, preflight.needs_of(remote.config, image.needs))
    there = engine.image(reference) or {}
    is_current = any(str(name).endswith(f"@{remote.digest}") for name in there.get("RepoDigests") or ())
    return found if is_current else [*found, *room(engine, remote.size_bytes)]


def _gpu(engine: Engine, image: Image, needs: Any) -> list[str]:
    """Whether the driver and the GPUs of this machine run it, where the containers run on this machine."""
    from gpudoctor.containers.images import preflight

    if not engine.is_local:
        return []
    verdict = preflight.verdict(needs, preflight.this_machine())
    return [f"{image.name} does not run here: {verdict.why}"] if verdict.runs == "no" else []


def room(engine: Engine, size_bytes: int) -> list[str]:
    """Nothing where the engine's disk is another machine's, or cannot be asked."""
    folder = engine.info.get("DockerRootDir") or (engine.info.get("store") or {}).get("graphRoot")
    if not engine.is_local or not folder or not Path(folder).is_dir():
        return []
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError:
        return []
    said = f"{gigabytes(free_bytes)} are free in {folder}, and {gigabytes(size_bytes)} are to be loaded at most, compressed"
    if free_bytes < size_bytes:
        return [f"there is too little room: {said}; {engine.program} system df says what can go"]
    if free_bytes < size_bytes * UNPACKED:
        _tell(f"Warning: it can get tight: {said}; unpacked it is two to three times that")
    return []


def gigabytes(size_bytes: int) -> str:
    """And smaller ones in smaller units."""
    if size_bytes >= 1e8:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e5 else f"{size_bytes / 1e3:.1f} kB"


def _run(engine: Engine, reference: str) -> None:
    """The engine's own progress goes to stderr, whatever it calls progress; stdout stays for the result."""
    words: list[str] = []
    stdout = subprocess.DEVNULL if engine.is_podman else STDERR
    with ending.started(engine.argv("pull", reference), stdout=stdout, stderr=subprocess.PIPE) as pulling:
        for line in pulling.stderr or ():
            if engine.is_podman and not line.startswith("Error"):
                _tell(line.rstrip())
            else:
                words.append(line)
    if pulling.returncode:
        raise engines.error(engine.program, "".join(words[-engines.MOST_LINES :]))


def _tell(line: str) -> None:
    click.echo(line, err=True)
