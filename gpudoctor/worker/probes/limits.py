"""Asks for the limits of this process: resource limits, shared and temporary space, CPUs, limits of its cgroups."""

from __future__ import annotations

import os
import resource
import time
from functools import partial
from typing import Any, Dict, Iterator, List, Optional, Tuple

from gpudoctor.worker.probes.machine import Answer, Machine

RESOURCES = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "stack": resource.RLIMIT_STACK,
}
CACHES = (
    ("TRITON_CACHE_DIR", ".triton/cache"),
    ("CUDA_CACHE_PATH", ".nv/ComputeCache"),
    ("TORCH_HOME", ".cache/torch"),
    ("TORCH_EXTENSIONS_DIR", ".cache/torch_extensions"),
    ("HF_HOME", ".cache/huggingface"),
)
CGROUP = "/sys/fs/cgroup"
CGROUP_FILES = {"memory": ("memory.max",), "cpu": ("cpu.max",), "pids": ("pids.max", "pids.current")}
CGROUP_V1_FILES = {
    "memory": ("memory.limit_in_bytes",),
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "pids": CGROUP_FILES["pids"],
}


def ask(machine: Machine) -> Iterator[Answer]:
    yield machine.file("/proc/self/limits")
    yield machine.ask("cgroup-limits", lambda: _cgroup_limits(machine))
    yield machine.ask("nccl-segments", lambda: _nccl_segments(machine))
    if machine.root == "/":
        yield from _ask_kernel(machine)


def _ask_kernel(machine: Machine) -> Iterator[Answer]:
    """Questions that only the running kernel can answer, not the files of another root."""
    yield machine.ask("limits", lambda: {name: _limit(number) for name, number in RESOURCES.items()})
    yield machine.ask("cpus", lambda: {"affinity": sorted(os.sched_getaffinity(0)), "count": os.cpu_count()})
    yield machine.ask("shm", lambda: _space("/dev/shm"))
    # Last, because a dead network file system never answers.
    yield machine.ask("tmp", lambda: _space(os.environ.get("TMPDIR") or "/tmp"))
    yield machine.ask("home", lambda: _space(os.path.expanduser("~")))
    yield machine.ask("cache-folders", _caches)


def _caches() -> Dict[str, Dict[str, Any]]:
    """Variable -> the folder that it names, or that is used without it."""
    home = os.path.expanduser("~")
    named = {name: os.environ.get(name) or (os.path.join(home, usual) if home.startswith("/") else "") for name, usual in CACHES}
    return {name: _cache(path) for name, path in named.items() if path.startswith("/")}


def _cache(path: str) -> Dict[str, Any]:
    """A folder that does not exist can be created if the nearest one above it is writable."""
    above = path
    while not os.path.lexists(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    return {"path": path, "exists": above == path, "writable": os.path.isdir(above) and os.access(above, os.W_OK | os.X_OK)}


def _limit(number: int) -> Tuple[Optional[int], ...]:
    """Soft and hard limit, None if unlimited."""
    return tuple(None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(number))


def _space(path: str) -> Dict[str, Any]:
    about = os.statvfs(path)
    return {
        "bytes": about.f_blocks * about.f_frsize,
        "free_bytes": about.f_bavail * about.f_frsize,
        "free_files": about.f_favail if about.f_files else None,  # file systems such as Btrfs have no limit
        "writable": os.access(path, os.W_OK | os.X_OK),
        "noexec": bool(about.f_flag & os.ST_NOEXEC),
    }


def _nccl_segments(machine: Machine) -> List[Dict[str, Any]]:
    """NCCL's shared-memory files; finding out whether a process still uses them would be slow."""
    segments = []
    for path in machine.matching("/dev/shm/nccl-*"):
        about = machine.call(partial(os.lstat, machine.path(path))).value
        if about:  # otherwise it was removed meanwhile
            age = round(time.time() - about.st_mtime)
            segments.append({"name": path, "age_seconds": age, "bytes": about.st_size, "uid": about.st_uid})
    return segments


def _cgroup_limits(machine: Machine) -> Dict[str, List[str]]:
    """The limits of this process's cgroup and of every cgroup above it, all of which apply."""
    own = {}  # controller -> its cgroup; version 2 has one for all, named ""
    for line in machine.read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    limits = {}
    for kind in CGROUP_FILES:
        if kind in own:
            limits[kind] = _limits_upwards(machine, CGROUP + "/" + kind, own[kind], CGROUP_V1_FILES[kind])
        else:
            limits[kind] = _limits_upwards(machine, CGROUP, own.get("", "/"), CGROUP_FILES[kind])
    return limits


def _limits_upwards(machine: Machine, root: str, folder: str, files: Tuple[str, ...]) -> List[str]:
    """The joined text of the files in every folder from `folder` up to `root`; a container sees only some of them."""
    found = []
    parts = [part for part in folder.split("/") if part]
    for depth in range(len(parts), -1, -1):
        paths = ["/".join([root, *parts[:depth], name]) for name in files]
        replies = [machine.call(partial(machine.read, path)) for path in paths]
        if all(reply.status == "ok" for reply in replies):
            found.append(" ".join(reply.value.strip() for reply in replies))
    return found
