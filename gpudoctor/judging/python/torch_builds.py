"""Which build of PyTorch to install instead of one that cannot use the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.versions import dotted
from gpudoctor.knowledge import wheels
from gpudoctor.model import Skip

INDEX = "https://download.pytorch.org/whl/"
BLACKWELL, FIRST_FOR_BLACKWELL = (10, 0), "570.86.10"
SAFE_INDEX = "cu126"  # for an unknown driver: the oldest index that is still built; it supports driver 525 and newer


def replacement(facts: Facts, version: str, capability: tuple[int, int] | None = None) -> dict[str, str]:
    """The release and the index to install from: the same release if it works here, else the newest that does."""
    capability = capability or _first_capability(facts)
    for release in (_release(version), *_newest_first(facts)):
        name = _variant(facts, release, capability)
        if name:
            return {"version": release, "index": INDEX + name}
    release, name = _for_unknown_gpu(facts, _release(version))
    return {"version": release, "index": INDEX + name}


def _for_unknown_gpu(facts: Facts, release: str) -> tuple[str, str]:
    """The same release from an index that has it, if the driver supports one; else the newest on the safe index."""
    row, driver = wheels.torch_release(release), known(lambda: _driver(facts))
    names = [SAFE_INDEX, row.default, *row.variants] if row and row.version == release else []
    for name in names:
        variant = wheels.variant(name)
        if row and name in row.variants and variant and (not driver or Version(driver) >= Version(variant.least)):
            return release, name
    offered = [other for version in _newest_first(facts) if (other := wheels.torch_release(version))]
    names = [SAFE_INDEX, *(one.variant for one in wheels.table().variants if driver and one.variant < SAFE_INDEX)]
    for name in names:
        variant = wheels.variant(name)
        if variant and (not driver or Version(driver) >= Version(variant.least)):
            found = next((other.version for other in offered if name in other.variants), None)
            if found:
                return found, name
    if safe := next((other.version for other in offered if SAFE_INDEX in other.variants), None):
        return safe, SAFE_INDEX
    return (offered[0].version, offered[0].default) if offered else (release, SAFE_INDEX)


def _release(version: str) -> str:
    try:
        return Version(version).base_version
    except InvalidVersion:
        return wheels.table().torch[0].version


def _newest_first(facts: Facts) -> Iterator[str]:
    """The known releases for this Python whose indexes are known too."""
    python = known(lambda: dotted(facts.python.version)) or _python_of_conda(facts)  # a text may not contain it
    for row in wheels.table().torch:
        if row.variants_verified and (python is None or _has_wheels_for(row, python)):
            yield row.version


def _has_wheels_for(row: wheels.TorchRelease, python: str) -> bool:
    """2.5 says that it requires 3.8, and has wheels from 3.9 on."""
    oldest = row.pythons.partition("-")[0].removeprefix(">=")
    return SpecifierSet(row.requires_python).contains(python) and Version(python) >= Version(oldest)


def _python_of_conda(facts: Facts) -> str | None:
    """The build of conda's package names it, as in py3.8_cuda11.3_cudnn8.2.0_0 and cpu_py39h1234567_0."""
    package = known(lambda: facts.python.conda_packages, {}).get("pytorch")
    match = re.search(r"(?:^|_)py3\.?(\d+)", package.build) if package and package.build else None
    return f"3.{match[1]}" if match else None


def _variant(facts: Facts, release: str, capability: tuple[int, int] | None) -> str | None:
    driver, machine = known(lambda: _driver(facts)), known(lambda: facts.system.architecture) or "x86_64"
    if capability and not driver and capability >= BLACKWELL:  # any driver for Blackwell supports what the first one supports
        driver = FIRST_FOR_BLACKWELL
    return knowledge.variant_for_driver(release, driver, capability, machine) if capability and driver else None


def _driver(facts: Facts) -> str | None:
    try:
        return facts.nvml.driver_version
    except Skip:
        return facts.driver.module_version or facts.driver.library_version


def _first_capability(facts: Facts) -> tuple[int, int] | None:
    try:
        return facts.nvml.gpus[0].compute_capability if facts.nvml.gpus else None
    except Skip:
        return _of_boards(facts)


def _of_boards(facts: Facts) -> tuple[int, int] | None:
    """From the PCI ids, if NVML does not answer: the lowest compute capability."""
    gpus = known(lambda: facts.pci.gpus, ())
    return min((row.compute_capability for gpu in gpus for row in knowledge.gpus_by_device_id(gpu.device_id)), default=None)
