"""Compares a machine with what it should have: an expectation of the user, or the known type that DMI or its cloud names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.knowledge import expectations
from gpudoctor.knowledge.expectations import Expectation, Gpus, Ports
from gpudoctor.model import Skip, Unavailable

JOB = re.compile(r"slurm|/lxc|kubepods|htcondor|pbs", re.I)
OF_FILE, NOMINAL = 0.97, 0.90
"""The share of an expected size that is enough. Of a nominal size, firmware and kernel keep a part."""


@dataclass(frozen=True)
class Expected:
    """name: of the type or the file. is_named: by the user. enough: the share of an expected size that is enough."""

    what: Expectation
    name: str
    is_named: bool
    enough: float


@dataclass(frozen=True)
class Difference:
    """about: gpus, links, network, host or settings."""

    about: str
    what: str
    expected: str
    found: str

    @property
    def words(self) -> str:
        return f"{self.what}: {self.found} instead of {self.expected}"


def expected(facts: Facts) -> Expected:
    """What this machine should have. Skip if that is not known."""
    if facts.expectation:
        given = dict(facts.expectation)
        source = str(given.pop("from", ""))
        try:
            what = msgspec.convert(given, Expectation, strict=False)
        except msgspec.ValidationError as failure:
            raise Unavailable(f"the expectation in this snapshot has an unexpected form: {failure}") from None
        return Expected(what, what.name or source, True, NOMINAL if source == "type" else OF_FILE)
    kind = _known_type(facts)
    if not kind or not kind.verified:
        raise Skip("no expectation was given, and the machine's type is not in the tables (gpudoctor expect list)")
    if facts.container.engine or JOB.search(facts.container.cgroup):
        raise Skip(f"this is a {kind.name}, of which a container or job may have only a part; name it with --expect to compare")
    return Expected(kind.expectation, kind.name, False, NOMINAL)


def number_of_gpus(facts: Facts) -> int:
    """How many GPUs the user expects, by --expect-gpus or --expect; 0 if that was not said."""
    named = known(lambda: expected(facts).what.gpus, ()) if facts.expectation else ()
    return facts.expected.get("gpus") or sum(row.count for row in named)


def _known_type(facts: Facts) -> expectations.Type | None:
    vendor, product = known(lambda: facts.inventory.vendor, ""), known(lambda: facts.inventory.product, "")
    if kind := expectations.by_dmi(vendor, product):
        return kind
    name = known(lambda: facts.inventory.instance_type, "")
    return expectations.named(name) if name else None


def comparisons(facts: Facts, wanted: Expected) -> list[Callable[[], Iterator[Difference]]]:
    """One for each thing that is expected. Of a type that the user did not name, only what no owner chooses is certain."""
    what = wanted.what
    certain = {
        "gpus": lambda: _gpus(facts, what, wanted.enough),
        "nvlinks_per_gpu": lambda: _links(facts, what.nvlinks_per_gpu or 0),
        "memory_gib": lambda: _memory(facts, what.memory_gib or 0, wanted.enough),
    }
    chosen = {
        "driver": lambda: _driver(facts, what),
        "network": lambda: _network(facts, what.network),
        "infiniband": lambda: _infiniband(facts, what.infiniband),
        "cpus": lambda: _number("host", "processors", what.cpus, facts.inventory.online_cpus),
        "cores": lambda: _number("host", "processor cores", what.cores, facts.inventory.cores),
        "numa_nodes": lambda: _number("host", "NUMA nodes", what.numa_nodes, len(facts.system.numa_nodes)),
        "disks": lambda: _disks(facts, what, wanted.enough),
        "persistence_mode": lambda: _persistence(facts, bool(what.persistence_mode)),
        "mig_per_gpu": lambda: _mig(facts, what.mig_per_gpu or {}),
    }
    looked_at = {**certain, **(chosen if wanted.is_named else {})}
    return [compare for name, compare in looked_at.items() if getattr(what, name) not in (None, ())]


def is_called(name: str, model: str) -> bool:
    """Whether the words of a model occur in a GPU's name: H100 in NVIDIA H100 80GB HBM3, but not in NVIDIA GH100."""
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(model)}(?![A-Za-z0-9])", name))


def _gpus(facts: Facts, what: Expectation, enough: float) -> Iterator[Difference]:
    gpus = list(facts.nvml.reachable.values())
    for row in what.gpus:
        alike = [gpu for gpu in gpus if is_called(gpu.name, row.model)]
        if len(alike) < row.count:
            others = Counter(gpu.name for gpu in gpus if gpu not in alike)
            found = [f"{len(alike)}", *(f"{count} × {name}" for name, count in others.items())]
            yield Difference("gpus", f"GPUs of model {row.model}", str(row.count), " and ".join(found))
        yield from _gpu_memory(row, [(gpu.index, gpu.memory_total_mib / 1024) for gpu in alike if row.memory_gib], enough)


def _gpu_memory(row: Gpus, sizes: list[tuple[int, float]], enough: float) -> Iterator[Difference]:
    small = [(index, size) for index, size in sizes if row.memory_gib and size < enough * row.memory_gib]
    if small:
        which = ", ".join(str(index) for index, _ in small)
        found = f"{min(size for _, size in small):.0f} GiB"
        yield Difference("gpus", f"memory of GPU {which}", f"{row.memory_gib:g} GiB", found)


def _links(facts: Facts, wanted: int) -> Iterator[Difference]:
    up = {gpu.index: sum(link.active for link in gpu.nvlinks) for gpu in facts.nvml.reachable.values()}
    for index, count in up.items():
        if count < wanted:
            yield Difference("links", f"NVLinks of GPU {index}", str(wanted), str(count))


def _memory(facts: Facts, wanted: float, enough: float) -> Iterator[Difference]:
    found = facts.system.memory_mib["MemTotal"] / 1024
    if found < enough * wanted:
        yield Difference("host", "memory", f"{wanted:g} GiB", f"{found:.0f} GiB")


def _number(about: str, what: str, wanted: int | None, found: int) -> Iterator[Difference]:
    if wanted is not None and found < wanted:
        yield Difference(about, what, str(wanted), str(found))


def _driver(facts: Facts, what: Expectation) -> Iterator[Difference]:
    found, wanted = facts.nvml.driver_version, what.driver
    if wanted and wanted.at_least and _release(found) < _release(wanted.at_least):
        yield Difference("settings", "driver", f"{wanted.at_least} or newer", found)
    if wanted and wanted.below and _release(found) >= _release(wanted.below):
        yield Difference("settings", "driver", f"a release before {wanted.below}", found)


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _network(facts: Facts, wanted: Ports | None) -> Iterator[Difference]:
    if facts.container.engine:
        raise Skip("a container sees only its own network", Skip.UNSUPPORTED)
    up = [adapter for adapter in facts.inventory.adapters if adapter.is_up]
    yield from _ports("network adapters that are up", wanted, {adapter.name: adapter.gbit_per_s for adapter in up})


def _infiniband(facts: Facts, wanted: Ports | None) -> Iterator[Difference]:
    active = [(port.device, port.port) for port in facts.system.infiniband_ports if port.state == "ACTIVE"]
    rates = known(lambda: facts.inventory.port_rates, {})
    yield from _ports(
        "active InfiniBand or RoCE ports", wanted, {f"{name}/{port}": rates.get((name, port)) for name, port in active}
    )


def _ports(what: str, wanted: Ports | None, speeds: dict[str, float | None]) -> Iterator[Difference]:
    """If the kernel does not know the speed of a port, only their number counts."""
    if wanted is None:
        return
    if len(speeds) < wanted.count:
        yield Difference("network", what, str(wanted.count), str(len(speeds)))
        return
    slow = {name: speed for name, speed in speeds.items() if wanted.gbit_per_s and speed and speed < wanted.gbit_per_s}
    fast = len(speeds) - len(slow)
    if fast < wanted.count:
        words = ", ".join(f"{name} {speed:g}" for name, speed in slow.items())
        yield Difference("network", what, f"{wanted.count} with {wanted.gbit_per_s:g} Gbit/s", f"{fast} ({words} Gbit/s)")


def _disks(facts: Facts, what: Expectation, enough: float) -> Iterator[Difference]:
    wanted = what.disks
    if wanted is None:
        return
    large = [disk for disk in facts.inventory.disks if disk.gigabytes >= enough * (wanted.gigabytes or 0)]
    size = f" of {wanted.gigabytes:g} GB or more" if wanted.gigabytes else ""
    yield from _number("host", f"disks{size}", wanted.count, len(large))


def _persistence(facts: Facts, wanted: bool) -> Iterator[Difference]:
    words = {True: "on", False: "off"}
    other = [str(gpu.index) for gpu in facts.nvml.reachable.values() if gpu.persistence_mode != wanted]
    if other:
        yield Difference("settings", f"persistence mode of GPU {', '.join(other)}", words[wanted], words[not wanted])


def _mig(facts: Facts, wanted: dict[str, int]) -> Iterator[Difference]:
    for gpu in facts.nvml.reachable.values():
        found = dict(Counter(profile(device.name) for device in gpu.mig_devices)) if gpu.is_in_mig_mode else {}
        if found != wanted:
            yield Difference("settings", f"MIG instances of GPU {gpu.index}", in_words(wanted), in_words(found))


def profile(name: str) -> str:
    """1g.10gb of NVIDIA H100 80GB HBM3 MIG 1g.10gb."""
    return name.rpartition("MIG ")[2]


def in_words(layout: dict[str, int]) -> str:
    return " and ".join(f"{count} × {name}" for name, count in sorted(layout.items())) or "none"
