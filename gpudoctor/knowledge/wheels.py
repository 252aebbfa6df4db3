"""Python GPU wheels: their pinned versions, GPU architectures and required drivers: `wheels.yaml`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache

from msgspec import field
from packaging.version import InvalidVersion, Version

from gpudoctor.knowledge.tables import Row, Table, load

Pair = tuple[int, int]


class TorchRelease(Row, frozen=True):
    """One release: `default` is the variant that plain pip installs on Linux, and the pins are its; `pythons` is as printed."""

    version: str
    default: str
    variants: tuple[str, ...]
    requires_python: str
    pythons: str
    experimental: tuple[str, ...] = ()
    variants_verified: bool = True
    cuda_runtime: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    cublas: str | None = None
    nvshmem: str | None = None
    triton: str | None = None
    cudnn_by_variant: dict[str, str] = field(default_factory=dict)
    nccl_by_variant: dict[str, str] = field(default_factory=dict)


class TorchArchitectures(Row, frozen=True):
    """What torch.cuda.get_arch_list() prints for the wheels of one minor release."""

    torch: Pair
    variants: tuple[str, ...]
    machine: str
    architectures: tuple[str, ...]


class Variant(Row, frozen=True):
    """One cuXXX variant: driver `least` runs it by minor-version compatibility; from driver `native` on, PTX works too."""

    variant: str
    cuda: Pair
    least: str
    native: str


class Package(Row, frozen=True):
    """The requirements of one release, or range of releases, of another GPU package, as printed.

    pythons, glibc and machines are those of its wheels; extras install the CUDA libraries; least_capability: of the oldest GPU.
    """

    package: str
    version: str
    cuda: str
    cudnn: str | None = None
    nccl: str | None = None
    nvcc: str | None = None
    least_driver: str | None = None
    requires_python: str | None = None
    pythons: str | None = None
    glibc: Pair | None = None
    machines: tuple[str, ...] = ()
    least_capability: Pair | None = None
    extras: str | None = None


class Assembler(Row, frozen=True):
    """The CUDA release of the ptxas in a minor release of Triton; `blackwell`: of its second ptxas, for GPUs from 10.0 on."""

    triton: Pair
    ptxas: Pair
    blackwell: Pair | None = None


class TorchGlibc(Row, frozen=True):
    """The oldest glibc of the wheels from a minor release on."""

    torch: Pair
    glibc: Pair


class Pinned(Row, frozen=True):
    """An engine's release, the release of PyTorch that it requires, and the CUDA release that its own kernels are built with."""

    package: str
    version: str
    torch: str
    cuda: Pair
    requires_python: str
    pythons: str | None = None
    glibc: Pair | None = None
    least_capability: Pair | None = None


class WheelTable(Table, frozen=True):
    torch: tuple[TorchRelease, ...]
    torch_architectures: tuple[TorchArchitectures, ...]
    variants: tuple[Variant, ...]
    packages: tuple[Package, ...]
    triton: tuple[Assembler, ...]
    torch_glibc: tuple[TorchGlibc, ...]
    pinned: tuple[Pinned, ...]


@cache
def table() -> WheelTable:
    return load("wheels", WheelTable)


def packages(name: str) -> tuple[Package, ...]:
    """The known releases of a package such as "tensorflow" or "jax-cuda12-plugin", newest first."""
    return tuple(row for row in table().packages if row.package == name)


def assembler(triton: str, compute_capability: Pair) -> Pair | None:
    """The CUDA release of the ptxas that this Triton uses for a GPU; None if it is not known."""
    wanted = _public(triton)
    row = next((row for row in table().triton if wanted and row.triton == wanted.release[:2]), None)
    if row is None:
        return None
    return (row.blackwell if compute_capability >= (10, 0) else None) or row.ptxas


def variant(name: str) -> Variant | None:
    """The row of "cu128"."""
    return next((row for row in table().variants if row.variant == name), None)


def torch_release(version: str) -> TorchRelease | None:
    """The release of this version; for a patch release or nightly that is not listed, the nearest."""
    wanted = _public(version)
    if wanted is None:
        return None
    same_minor = [row for row in table().torch if Version(row.version).release[:2] == wanted.release[:2]]
    return min(same_minor, key=lambda row: abs(Version(row.version).micro - wanted.micro), default=None)


def torch_glibc(version: str) -> Pair | None:
    """The oldest glibc of its wheels; None if not known."""
    wanted = _public(version)
    return next((row.glibc for row in table().torch_glibc if wanted and row.torch <= wanted.release[:2]), None)


def torch_architectures(version: str, variant: str, machine: str = "x86_64") -> tuple[str, ...] | None:
    """The GPU architectures in a published Linux wheel, such as ("sm_90", "compute_90"); None if not known."""
    wanted = _public(version)
    if wanted is None:
        return None
    key = (wanted.release[:2], {"arm64": "aarch64", "amd64": "x86_64"}.get(machine.lower(), machine))
    rows = (row for row in table().torch_architectures if (row.torch, row.machine) == key and variant in row.variants)
    return next((row.architectures for row in rows), None)


def runs_on(architectures: Iterable[str], compute_capability: Pair) -> bool:
    """Whether a program built for these architectures has code for a GPU.

    A binary (sm_XY) runs on its major version from its minor version on, PTX (compute_XY) on any newer GPU. With the
    suffix `a` either runs on exactly that GPU, with `f` on that family: the same major version from that minor on.
    """
    return any(_serves(name, compute_capability) for name in architectures)


def variant_for_driver(torch_version: str, driver_version: str, compute_capability: Pair, machine: str = "x86_64") -> str | None:
    """The variant of a torch release to install for this driver and GPU; None if no variant fits or it is not known.

    Of the variants whose native driver is not newer than this driver: the one that plain pip installs, else the newest that is
    not experimental, else the newest. Otherwise: the oldest that minor-version compatibility allows.
    """
    return variant_for_all(torch_version, driver_version, [compute_capability], machine)


def variant_for_all(
    torch_version: str,
    driver_version: str,
    compute_capabilities: Iterable[Pair],
    machine: str = "x86_64",
    among: Collection[str] | None = None,
) -> str | None:
    """Like variant_for_driver, for GPUs of several kinds in one machine. among: the variants to choose from, if not all."""
    release, driver = torch_release(torch_version), _public(driver_version)
    if release is None or driver is None:
        return None
    each = [set(_usable(release, driver, capability, machine)) for capability in compute_capabilities]
    usable = [row for row in set.intersection(*each) if among is None or row.variant in among] if each else []
    native = [row for row in usable if Version(row.native) <= driver]
    if not native:
        return min(usable, key=lambda row: row.cuda).variant if usable else None
    return max(native, key=lambda row: _preference(row, release)).variant


def _preference(row: Variant, release: TorchRelease) -> tuple[bool, bool, Pair]:
    return row.variant == release.default, row.variant not in release.experimental, row.cuda


def _usable(release: TorchRelease, driver: Version, compute_capability: Pair, machine: str) -> Iterator[Variant]:
    for row in filter(None, map(variant, release.variants)):
        built_for = torch_architectures(release.version, row.variant, machine) or ()
        if driver < Version(row.native):
            # A driver older than the toolkit cannot compile the toolkit's PTX, so only binaries count there.
            # https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
            built_for = tuple(name for name in built_for if name.startswith("sm_"))
        if driver >= Version(row.least) and runs_on(built_for, compute_capability):
            yield row


def _serves(name: str, compute_capability: Pair) -> bool:
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
    if not match:
        return False
    kind, major, minor, suffix = match.groups()
    built_for = int(major), int(minor)
    if suffix == "a":
        return built_for == compute_capability
    if kind == "compute" and not suffix:
        return built_for <= compute_capability
    return built_for[0] == compute_capability[0] and built_for[1] <= compute_capability[1]


def _public(version: str) -> Version | None:
    """The release number alone, without local label and pre-release: 2.9.0 of "2.9.0a0+git1234"."""
    try:
        return Version(Version(version).base_version)
    except InvalidVersion:
        return None
