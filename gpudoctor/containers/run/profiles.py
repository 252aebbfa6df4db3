"""What `gpudoctor run --for` adds, by what the container is for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """What a kind of work needs beyond the defaults. devices: given, with device_capabilities, where the host has them."""

    why: str
    ipc: str = ""
    capabilities: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    device_capabilities: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()


PROFILES = {
    "training": Profile(
        "--ipc host: the workers that load data hand batches over in shared memory, which then has no limit but RAM.",
        ipc="host",
    ),
    "multi-gpu": Profile(
        "--ipc host; --cap-add SYS_NICE: NCCL places its buffers near each GPU; and, where the host has InfiniBand, "
        "--device /dev/infiniband --cap-add IPC_LOCK: RDMA. For several machines also --network host.",
        ipc="host",
        capabilities=("SYS_NICE",),
        devices=("/dev/infiniband",),
        device_capabilities=("IPC_LOCK",),
    ),
    "profile": Profile(
        "--cap-add SYS_ADMIN: the counters of ncu, and perf; --cap-add SYS_PTRACE: debuggers and py-spy. What runs inside "
        "can then do nearly all that root can on the host: only for programs you trust.",
        capabilities=("SYS_ADMIN", "SYS_PTRACE"),
    ),
    "notebook": Profile(
        "-p 127.0.0.1:8888:8888: Jupyter is reached from this machine alone (ssh -L 8888:localhost:8888 from yours). It must "
        "listen on all addresses inside: jupyter lab --ip=0.0.0.0 --allow-root",
        ports=("127.0.0.1:8888:8888",),
    ),
}


def of(names: tuple[str, ...]) -> Profile:
    """All that the named ones add, together."""
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
