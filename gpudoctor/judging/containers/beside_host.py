"""A container and its host: on which of the two a problem is, and what each of them sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.versions import dotted
from gpudoctor.model import Check, Confidence, Diagnosis, Difference, Report, Skip, Status

# What a container shares with its host. Python, limits and environment are the container's own.
AREAS = ("machine", "hardware", "driver", "container", "wsl", "health", "links")
BROKEN_FOR_ALL = ("hardware", "driver", "wsl")  # if these fail on the host, no container can have a GPU
FOLLOWING = ("hardware", "driver", "cuda", "health", "links", "multi-gpu")
FOLLOWING_CHECKS = ("container-gpu-access", "container-gpus")

GIB = 1 << 30


def checks(every: Mapping[str, Check]) -> dict[str, Check]:
    """The checks that are also judged on the host."""
    return {id: check for id, check in every.items() if check.area in AREAS and not check.workloads}


def why_first(host: Report) -> Report:
    """The report on the host of a container that did not start, with the reason for that first."""
    return replace(host, diagnosis=tuple(sorted(host.diagnosis, key=lambda entry: entry.check != "container-start")))


def joined(inside: Report, host: Report, facts: Facts) -> Report:
    """The report on a container, with the problems of its host first; they explain their effects in the container."""
    found = [replace(entry, on_host=True) for entry in host.diagnosis]
    areas = {result.id: result.area for report in (inside, host) for result in report.checks}
    own = []
    for entry in inside.diagnosis:
        cause = next((number for number, one in enumerate(found) if _explains(one, entry, areas, facts)), None)
        if cause is None:
            own.append(entry)
        else:
            seen = (*found[cause].explains, entry.check, *entry.explains)
            found[cause] = _with(found[cause], entry, tuple(id for id in dict.fromkeys(seen) if id != found[cause].check))
    worst = max(inside.status, host.status, key=list(Status).index)
    sentence = f"{inside.coverage.sentence} On the host: {host.coverage.sentence}"
    return replace(
        inside,
        status=worst,
        diagnosis=tuple(sorted([*found, *own], key=lambda entry: entry.status is not Status.FAIL)),
        notes=(*(replace(entry, on_host=True) for entry in host.notes), *inside.notes),
        host=host.checks,
        comparison=tuple(comparison(facts)),
        coverage=replace(inside.coverage, sentence=sentence),
        facts={**inside.facts, "host": host.facts},
    )


def _with(cause: Diagnosis, effect: Diagnosis, explains: tuple[str, ...]) -> Diagnosis:
    """A cause with the worse of the two states; if both sides see the same problem, with the higher confidence."""
    status = max(cause.status, effect.status, key=list(Status).index)
    if cause.problem != effect.problem:
        return replace(cause, status=status, explains=explains)
    surest = min(cause.confidence, effect.confidence, key=list(Confidence).index)
    return replace(cause, status=status, confidence=surest, explains=explains)


def _explains(cause: Diagnosis, effect: Diagnosis, areas: Mapping[str, str], facts: Facts) -> bool:
    if cause.problem == effect.problem:
        return None in (cause.gpu, effect.gpu) or cause.gpu == index_on_host(facts, effect.gpu)
    broken = cause.status is Status.FAIL and cause.gpu is None and areas.get(cause.check) in BROKEN_FOR_ALL
    return broken and (areas.get(effect.check) in FOLLOWING or effect.check in FOLLOWING_CHECKS)


def index_on_host(facts: Facts, gpu: int | None) -> int | None:
    """The index on the host of a container's GPU: a container numbers its GPUs from 0, but the UUID is the same."""
    try:
        uuid = next(one.uuid for one in facts.nvml.gpus if one.index == gpu)
        return next((one.index for one in facts.host.nvml.gpus if one.uuid == uuid), gpu)
    except (Skip, StopIteration):
        return gpu


def comparison(facts: Facts) -> list[Difference]:
    """What the host and the container see, in rows; a row that neither could read is left out."""
    rows = []
    for what, read in _ROWS.items():
        host, container = (known(partial(read, side)) for side in (facts.host, facts))
        if host is not None or container is not None:
            differs = host is not None and container is not None and host != container
            rows.append(Difference(what, _said(host), _said(container), differs))
    return rows


def _said(value: Any) -> str:
    return "unknown" if value is None else str(value)


def gpu_count(facts: Facts) -> int:
    """From NVML, else the number of device nodes, which a shell can count."""
    try:
        return facts.nvml.count
    except Skip:
        return len(facts.devices.gpu_nodes)


def _driver(facts: Facts) -> str | None:
    return facts.driver.module_version


def _libcuda(facts: Facts) -> str | None:
    """The driver release of the libcuda that a program would load."""
    return facts.cuda.library_version


def _cuda(facts: Facts) -> str:
    return dotted(facts.cuda.driver_version) + (" (forward compatibility)" if facts.cuda.is_compat else "")


def _compat(facts: Facts) -> str:
    """The installed releases of cuda-compat, whether or not a program would load them."""
    releases = sorted({library.version for library in facts.libraries.named("libcuda") if library.is_compat and library.version})
    return ", ".join(releases) or "none"


def _limit(bytes_: int | None) -> str:
    return "unlimited" if bytes_ is None else _size(bytes_)


def _size(bytes_: int) -> str:
    return f"{bytes_ / GIB:.1f} GiB" if bytes_ >= GIB else f"{bytes_ >> 20} MiB" if bytes_ >= 1 << 20 else f"{bytes_ >> 10} KiB"


def _variable(name: str) -> Callable[[Facts], str]:
    return lambda facts: facts.environment.get(name) or "not set"


_ROWS: dict[str, Callable[[Facts], Any]] = {
    "GPUs": gpu_count,
    "kernel module": _driver,
    "libcuda": _libcuda,
    "CUDA of the driver": _cuda,
    "compatibility libraries": _compat,
    "shared memory": lambda facts: _size(facts.limits.shm_bytes),
    "locked memory": lambda facts: _limit(facts.limits.memlock[0]),
    "open files": lambda facts: facts.limits.open_files[0] or "unlimited",
    "CPUs": lambda facts: len(facts.limits.cpus),
    "CPU quota": lambda facts: facts.limits.cgroup_cpus or "none",
    "memory limit": lambda facts: _limit(facts.limits.cgroup_memory_bytes),
    "NVIDIA_VISIBLE_DEVICES": _variable("NVIDIA_VISIBLE_DEVICES"),
    "CUDA_VISIBLE_DEVICES": _variable("CUDA_VISIBLE_DEVICES"),
}
