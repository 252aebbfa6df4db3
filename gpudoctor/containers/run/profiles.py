"""The options that `gpudoctor run --for` adds for each kind of work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """What a kind of work needs besides the defaults. devices: added, with device_capabilities, if the host has them."""

    why: str
    ipc: str = ""
    capabilities: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    device_capabilities: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()


PROFILES = {
    "training": Profile(
        "--ipc host: data loader workers pass batches through shared memory, which is then limited only by RAM.",
        ipc="host",
    ),
    "multi-gpu": Profile(
        "--ipc host; --cap-add SYS_NICE: lets NCCL place its buffers near each GPU; and, if the host has InfiniBand, "
        "--device /dev/infiniband --cap-add IPC_LOCK: for RDMA. For several machines, also use --network host.",
        ipc="host",
        capabilities=("SYS_NICE",),
        devices=("/dev/infiniband",),
        device_capabilities=("IPC_LOCK",),
    ),
    "profile": Profile(
        "--cap-add SYS_ADMIN: for the counters of ncu, and for perf; --cap-add SYS_PTRACE: for debuggers and py-spy. Programs "
        "inside can then do nearly everything that root can do on the host: use it only for programs you trust.",
        capabilities=("SYS_ADMIN", "SYS_PTRACE"),
    ),
    "notebook": Profile(
        "-p 127.0.0.1:8888:8888: Jupyter is reachable from this machine only (from yours: ssh -L 8888:localhost:8888 HOST). It "
        "must listen on all addresses inside: jupyter lab --ip=0.0.0.0 --allow-root",
        ports=("127.0.0.1:8888:8888",),
    ),
}


def of(names: tuple[str, ...]) -> Profile:
    """The named profiles combined."""
    chosen = [PROFILES[name] for name in names]
    return Profile(
        why=" ".join(profile.why for profile in chosen),
        ipc=next((profile.ipc for profile in chosen if profile.ipc), ""),
        capabilities=_each(profile.capabilities for profile in chosen),
        devices=_each(profile.devices for profile in chosen),
        device_capabilities=_each(profile.device_capabilities for profile in chosen),
        ports=_each(profile.ports for profile in chosen),
    )


def _each(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for group in groups for value in group))
