"""The user's options for a container."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The user's options. The lists hold values as `docker run` takes them; docker_options: other options of `docker run`."""

    command: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    ulimits: tuple[str, ...] = ()
    docker_options: tuple[str, ...] = ()
    workdir: str = ""
    name: str = ""
    network: str = ""
    user: str = ""
    shm_size: str = ""
    ipc: str = ""
    mount: bool = True
    cache: bool = True
    keep: bool = False
