"""What is mounted into the container: the current folder, and the caches of earlier runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor.containers.run import caches
from gpudoctor.containers.run.words import pairs

if TYPE_CHECKING:
    from gpudoctor.containers.engine.client import Engine
    from gpudoctor.containers.run.caller import Place
    from gpudoctor.containers.run.options import Options

WORKSPACE = "/workspace/host"  # NVIDIA's images have their own files in /workspace
MOUNT = re.compile(r"(-v[ =]?|--volume[ =])(?P<volume>.+)|--mount[ =](?P<mount>.+)", re.DOTALL)
TARGET = re.compile(r'(?:^|,)"?(?:target|dst|destination)=([^,"]+)')  # in a value of --mount


def kept(engine: Engine, about: Mapping[str, Any], place: Place, user: str) -> caches.Caches | None:
    """The caches of this image and user; None if the engine cannot mount them or the image is not present."""
    if not (engine.is_local and place.cache and about.get("Id")):
        return None
    user = user or str((about.get("Config") or {}).get("User") or "root").partition(":")[0]
    user = "root" if user == "0" else user
    root_is_another = not engine.is_podman and not engine.is_rootless and place.uid != 0
    return caches.of(place.cache, about["Id"], user, user == "root" and root_is_another)


def arguments(engine: Engine, options: Options, place: Place, kept: caches.Caches | None) -> Iterator[str]:
    taken_places = set(_taken(options))
    taken = WORKSPACE in taken_places
    folder = place.folder if options.mount and engine.is_local and not taken else None
    if folder and folder != Path("/"):
        yield from _bind(folder, WORKSPACE)
    workdir = options.workdir or (WORKSPACE if taken or (folder and folder != Path("/")) else "")
    if workdir:
        yield from ("-w", workdir)
    for source, target in kept.mounts if kept else ():
        if target not in taken_places:
            yield from _bind(source, target)


def _taken(options: Options) -> Iterator[str]:
    """The targets of the user's own mounts; an engine accepts no second mount there."""
    for piece in (*(("-v", volume) for volume in options.volumes), *pairs(options.docker_options)):
        found = MOUNT.fullmatch(" ".join(piece))
        if found and found["volume"]:
            source, _, rest = found["volume"].partition(":")
            yield (rest.partition(":")[0] or source).rstrip("/")
        elif found and (target := TARGET.search(found["mount"])):
            yield target[1].rstrip("/")


def _bind(source: Path, target: str) -> tuple[str, str]:
    """-v splits the path at each colon; --mount reads a line of CSV."""
    if ":" not in str(source):
        return "-v", f"{source}:{target}"
    path = str(source).replace('"', '""')
    return "--mount", f'type=bind,"source={path}",target={target}'
