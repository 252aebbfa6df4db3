"""Which releases of a GPU package run on a GPU, driver, glibc and Python, and why the others do not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.facts.versions import dotted
from gpudoctor.judging.python.torch_builds import INDEX
from gpudoctor.knowledge import wheels
from gpudoctor.knowledge.wheels import Package, Pair, Pinned, TorchRelease

# Package -> its requirement, and the packages of the table whose rows say what it needs.
NAMES = {
    "torch": ("torch=={version}",),
    "vllm": ("vllm=={version}",),
    "sglang": ("sglang=={version}",),
    "jax": ("jax[cuda{major}]=={version}", "jax-cuda13-plugin", "jax-cuda12-plugin"),
    "cupy": ("cupy-cuda{major}x{extras}=={version}", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"),
    "tensorflow": ("tensorflow[and-cuda]=={version}", "tensorflow"),
    "onnxruntime": ("onnxruntime-gpu{extras}=={version}", "onnxruntime-gpu"),
}
BRING_NO_CUDA = ("cupy", "onnxruntime")  # unless an extra does


@dataclass(frozen=True)
class Place:
    """Where a package is to run. capabilities: of its GPUs. glibc: None if not known; python: as in 3.12."""

    capabilities: tuple[Pair, ...]
    driver: str
    python: str
    machine: str = "x86_64"
    glibc: Pair | None = None


@dataclass(frozen=True)
class Option:
    """A release. build: such as cu126. index: where pip finds it, "" for PyPI. why_not: "" if it runs here.

    cuda: the CUDA release whose libraries must be installed next to it; "" if it brings them.
    """

    requirement: str
    version: str
    build: str
    index: str = ""
    why_not: str = ""
    cuda: str = ""

    @property
    def command(self) -> str:
        requirement = f"'{self.requirement}'" if "[" in self.requirement else self.requirement
        return f"pip install {requirement}" + (f" --index-url {self.index}" if self.index else "")


def options(package: str, place: Place) -> list[Option]:
    """Its releases, the newest first."""
    found = {"torch": _torch, "vllm": _pinned, "sglang": _pinned}.get(package, _others)(package, place)
    return sorted(found, key=lambda option: (Version(option.version), option.build), reverse=True)


def _torch(package: str, place: Place) -> Iterator[Option]:
    for row in wheels.table().torch:
        yield _torch_release(row, place, row.variants if row.variants_verified else (row.default,))


def _torch_release(row: TorchRelease, place: Place, variants: tuple[str, ...]) -> Option:
    build = wheels.variant_for_all(row.version, place.driver, place.capabilities, place.machine, variants)
    why_not = "" if build else _no_build(row, place, variants)
    why_not = why_not or _glibc(wheels.torch_glibc(row.version), place) or _python(row.pythons, place)
    index = INDEX + build if build and build != row.default else ""
    return Option(f"torch=={row.version}", row.version, build or row.default, index, why_not)


def _python(pythons: str, place: Place) -> str:
    """pythons: "3.9-3.13" or ">=3.11"."""
    bounds = [Version(bound) for bound in re.findall(r"\d+\.\d+", pythons)]
    own = Version(".".join(place.python.split(".")[:2]))
    fits = bounds[0] <= own and (len(bounds) == 1 or own <= bounds[1])
    return "" if fits else f"has wheels for Python {pythons.removeprefix('>=')}{' and newer' * (len(bounds) == 1)} only"


def _glibc(oldest: Pair | None, place: Place) -> str:
    if oldest is None or place.glibc is None or place.glibc >= oldest:
        return ""
    return f"requires glibc {dotted(oldest)}; here is {dotted(place.glibc)}"


def _no_build(row: TorchRelease, place: Place, variants: tuple[str, ...]) -> str:
    """Why no variant runs on all GPUs: none has code for one of them, or the driver is too old for those that have."""
    for each in place.capabilities:
        fitting = [
            variant
            for name in variants
            if (variant := wheels.variant(name))
            and knowledge.runs_on(knowledge.torch_architectures(row.version, name, place.machine) or (), each)
        ]
        if not fitting:
            return f"has no code for GPUs of compute capability {dotted(each)}"
        least = min((variant.least for variant in fitting), key=Version)
        if Version(place.driver) < Version(least):
            return f"requires driver {least} or newer"
    return "has no build that runs on all of these GPUs with this driver"


def _pinned(package: str, place: Place) -> Iterator[Option]:
    for row in wheels.table().pinned:
        if row.package == package:
            yield _engine(row, place)


def _engine(row: Pinned, place: Place) -> Option:
    torch = wheels.torch_release(row.torch)
    why_not = _gpu(row.least_capability, place) or _cuda(row.cuda, None, place)
    if torch and not why_not:
        needed = _torch_release(torch, place, (torch.default,))  # the one that pip installs with it
        why_not = f"requires torch {row.torch}, which {needed.why_not}" if needed.why_not else ""
    why_not = why_not or _glibc(row.glibc, place) or _pythons(row, place)
    return Option(f"{row.package}=={row.version}", row.version, f"cu{row.cuda[0]}{row.cuda[1]}", "", why_not)


def _others(package: str, place: Place) -> Iterator[Option]:
    requirement, *names = NAMES[package]
    for name in names:
        for row in wheels.packages(name):
            cuda = _cuda_of(row)
            if row.verified and cuda:
                version = row.version.rpartition("-")[2]  # of a range, the newest
                extras = f"[{row.extras}]" if row.extras else ""
                why_not = _gpu(row.least_capability, place) or _cuda(cuda, row.least_driver, place) or _machine(row, place)
                why_not = why_not or _glibc(row.glibc, place) or _pythons(row, place)
                wanted = requirement.format(version=version, major=cuda[0], extras=extras)
                more = str(cuda[0]) if package in BRING_NO_CUDA and not extras else ""
                yield Option(wanted, version, f"CUDA {cuda[0]}", "", why_not, more)


def _cuda_of(row: Package) -> Pair | None:
    """The oldest CUDA release that a row names: (12, 5) of "<13.0,>=12.5.82"."""
    found = sorted((int(major), int(minor or 0)) for major, minor in re.findall(r"(\d+)\.(\d+|(?=x))", row.cuda))
    return found[0] if found else None


def _pythons(row: Package | Pinned, place: Place) -> str:
    wanted = row.requires_python
    if wanted and not SpecifierSet(wanted).contains(place.python):
        return f"requires Python {wanted}"
    return _python(row.pythons, place) if row.pythons else ""


def _gpu(least: Pair | None, place: Place) -> str:
    unfit = [each for each in place.capabilities if least and each < least]
    return f"supports compute capability {dotted(least)} and newer" if least and unfit else ""


def _machine(row: Package, place: Place) -> str:
    return f"has wheels for {', '.join(row.machines)} only" if row.machines and place.machine not in row.machines else ""


def _cuda(cuda: Pair, least: str | None, place: Place) -> str:
    """Why programs built with this CUDA release do not run here."""
    for each in place.capabilities:
        known = knowledge.architecture(each)
        if known and known.last_cuda and known.last_cuda < cuda:
            return f"is built with CUDA {dotted(cuda)}, which no longer supports compute capability {dotted(each)}"
    least = least or knowledge.minimum_driver(cuda)
    return f"requires driver {least} or newer" if least and Version(place.driver) < Version(least) else ""
