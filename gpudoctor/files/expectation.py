"""The file of an expectation: read, and written from a healthy machine."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor import plain_yaml
from gpudoctor.errors import UserError
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging import expected
from gpudoctor.knowledge import expectations
from gpudoctor.knowledge.expectations import SCHEMA, Disks, Driver, Expectation, Gpus, Ports
from gpudoctor.model import Skip
from gpudoctor.spelling import unknown

_MOST_BYTES = 1 << 20
_MOST_LEVELS = 20
_HEAD = """\
# What this machine should have at least, for gpudoctor check --expect FILE. What is left out is not looked at.
# All fields: gpudoctor schema expectation
"""


def named(name: str, option: str = "--expect: ") -> dict[str, Any]:
    """The expectation in a file or of a known type, as a snapshot keeps it. UserError, in one line, if there is none."""
    path = Path(name)
    if "/" in name or path.suffix in (".yaml", ".yml", ".json") or path.is_file():
        return {"from": path.name, **expectations.plain(load(path))}
    kind = expectations.named(name)
    if kind is None:
        names = [kind.name for kind in expectations.table().types]
        raise UserError(f"{option}{unknown('type of machine', name, names)} (gpudoctor expect list), and no file has this name")
    return {"from": "type", **expectations.plain(kind.expectation)}


def checked(name: str) -> Expectation:
    given = named(name, option="")
    del given["from"]
    return msgspec.convert(given, Expectation)


def load(path: Path) -> Expectation:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as failure:
        raise UserError(f"cannot read {path}: {failure.strerror}") from None
    if len(text) > _MOST_BYTES:
        raise UserError(f"{path} is not an expectation: it is larger than 1 MiB")
    try:
        _must_be_plain(text, path)
        raw = msgspec.yaml.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError) as failure:
        raise UserError(f"{path} is not YAML: {' '.join(str(failure).split())[:200]}") from None
    if not isinstance(raw, dict) or "schema" not in raw:
        raise UserError(f"{path} is not an expectation: it has no line 'schema: {SCHEMA}'")
    try:
        return msgspec.convert(raw, Expectation)
    except (msgspec.ValidationError, RecursionError) as failure:
        raise UserError(f"{path} is not an expectation of this version: {failure}") from None


def _must_be_plain(text: bytes, path: Path) -> None:
    import yaml

    try:
        other = plain_yaml.first_other(text, _MOST_LEVELS)
    except yaml.YAMLError as failure:
        raise ValueError(failure) from None
    if other:
        raise UserError(f"{path} is not an expectation: it has {other[0]} in line {other[1]}")


def of(facts: Facts, name: str = "") -> Expectation:
    """What a healthy machine has. What could not be read is left out."""
    none: dict[str, Gpu] = {}
    gpus = list(known(lambda: facts.nvml.reachable, none).values())
    in_container = bool(known(lambda: facts.container.engine))
    driver = known(lambda: facts.nvml.driver_version, "")
    return Expectation(
        schema=SCHEMA,
        name=name,
        gpus=_gpus(gpus),
        driver=Driver(at_least=driver) if driver else None,
        nvlinks_per_gpu=_links(gpus),
        network=None if in_container else _or_none(lambda: _network(facts)),
        infiniband=_or_none(lambda: _infiniband(facts)),
        cpus=_or_none(lambda: facts.inventory.online_cpus),
        cores=_or_none(lambda: facts.inventory.cores),
        numa_nodes=_or_none(lambda: len(facts.system.numa_nodes)),
        memory_gib=_or_none(lambda: float(round(facts.system.memory_mib["MemTotal"] / 1024))),
        disks=_or_none(lambda: _disks(facts)),
        persistence_mode=_shared(gpus, lambda gpu: gpu.persistence_mode),
        mig_per_gpu=_shared(gpus, _layout),
    )


def _or_none(read: Callable[[], Any]) -> Any:
    with contextlib.suppress(Skip, LookupError):
        return read()
    return None


def _shared(gpus: list[Gpu], read: Callable[[Gpu], Any]) -> Any:
    """The value that all GPUs have; None if they differ or it is unknown."""
    values = [_or_none(partial(read, gpu)) for gpu in gpus]
    return values[0] if values and all(value == values[0] for value in values) else None


def _links(gpus: list[Gpu]) -> int | None:
    """The links that are up on each GPU; None without any."""
    counts = [_or_none(partial(_up, gpu)) for gpu in gpus]
    return (min(counts) or None) if counts and None not in counts else None


def _up(gpu: Gpu) -> int:
    return sum(link.active for link in gpu.nvlinks)


def _gpus(gpus: list[Gpu]) -> tuple[Gpus, ...]:
    counts = Counter((_or_none(partial(_name, gpu)), _or_none(partial(_memory_gib, gpu))) for gpu in gpus)
    return tuple(Gpus(model=model, count=count, memory_gib=size) for (model, size), count in counts.items() if model)


def _name(gpu: Gpu) -> str:
    return gpu.name


def _memory_gib(gpu: Gpu) -> float:
    return float(gpu.memory_total_mib // 1024)


def _network(facts: Facts) -> Ports | None:
    up = [adapter for adapter in facts.inventory.adapters if adapter.is_up]
    return _ports([adapter.gbit_per_s for adapter in up])


def _infiniband(facts: Facts) -> Ports | None:
    rates = known(lambda: facts.inventory.port_rates, {})
    active = [port for port in facts.system.infiniband_ports if port.state == "ACTIVE"]
    return _ports([rates.get((port.device, port.port)) for port in active])


def _ports(speeds: list[float | None]) -> Ports | None:
    if not speeds:
        return None
    slowest = None if None in speeds else min(speed for speed in speeds if speed is not None)
    return Ports(count=len(speeds), gbit_per_s=slowest)


def _disks(facts: Facts) -> Disks | None:
    sizes = [disk.gigabytes for disk in facts.inventory.disks]
    return Disks(count=len(sizes), gigabytes=float(int(min(sizes)))) if sizes else None


def _layout(gpu: Gpu) -> dict[str, int]:
    if not gpu.is_in_mig_mode:
        return {}
    return dict(sorted(Counter(expected.profile(device.name) for device in gpu.mig_devices).items()))


def dump(expectation: Expectation) -> str:
    return _HEAD + msgspec.yaml.encode(expectation).decode()
