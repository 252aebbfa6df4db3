"""What a machine should have: the form of an expectation, and those of known types of machines, `expectations.yaml`."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import msgspec

from gpudoctor.knowledge.tables import Row, Table, load

SCHEMA: Literal["gpudoctor.expectation/1"] = "gpudoctor.expectation/1"

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Size = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Words = Annotated[str, msgspec.Meta(min_length=1, max_length=120)]
Release = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{3}(\.[0-9]{1,4}){0,2}$")]


class Gpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """GPUs of one model. model: words of the name that nvidia-smi prints, such as H100 or NVIDIA H100 80GB HBM3."""

    model: Words
    count: Count
    memory_gib: Size | None = None


class Ports(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Adapters or ports that are up, each at least this fast."""

    count: Count
    gbit_per_s: Size | None = None


class Disks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Local disks, each at least this large (10⁹ bytes)."""

    count: Count
    gigabytes: Size | None = None


class Driver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Releases such as 570.124.06 or 580."""

    at_least: Release | None = None
    below: Release | None = None


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a machine should have at least; what is left out is not looked at.

    mig_per_gpu: MIG profile -> instances on each GPU; an empty one means that MIG is off.
    """

    schema: Literal["gpudoctor.expectation/1"]
    name: str = ""
    gpus: tuple[Gpus, ...] = ()
    driver: Driver | None = None
    nvlinks_per_gpu: Count | None = None
    network: Ports | None = None
    infiniband: Ports | None = None
    cpus: Count | None = None
    cores: Count | None = None
    numa_nodes: Count | None = None
    memory_gib: Size | None = None
    disks: Disks | None = None
    persistence_mode: bool | None = None
    mig_per_gpu: dict[str, Count] | None = None


class Type(Row, frozen=True, kw_only=True, omit_defaults=True):
    """A type of machine. vendor, product: how DMI names it; a product that ends with * stands for any end."""

    name: str
    provider: str
    vendor: str = ""
    product: tuple[str, ...] = ()
    gpus: tuple[Gpus, ...] = ()
    nvlinks_per_gpu: Count | None = None
    network: Ports | None = None
    infiniband: Ports | None = None
    cpus: Count | None = None
    cores: Count | None = None
    numa_nodes: Count | None = None
    memory_gib: Size | None = None
    disks: Disks | None = None

    @property
    def expectation(self) -> Expectation:
        shared = {name: getattr(self, name) for name in self.__struct_fields__ if name in Expectation.__struct_fields__}
        return Expectation(schema=SCHEMA, **shared)

    def is_called(self, vendor: str, product: str) -> bool:
        """Whether DMI names this type."""
        if vendor != self.vendor:
            return False
        return any(product.startswith(name[:-1]) if name.endswith("*") else product == name for name in self.product)


class ExpectationTable(Table, frozen=True):
    types: tuple[Type, ...]


@cache
def table() -> ExpectationTable:
    return load("expectations", ExpectationTable)


def named(name: str) -> Type | None:
    return next((kind for kind in table().types if kind.name.lower() == name.lower()), None)


def by_dmi(vendor: str, product: str) -> Type | None:
    """The type that DMI names; None if it names none that is known."""
    return next((kind for kind in table().types if kind.is_called(vendor, product)), None)


def plain(expectation: Expectation) -> dict[str, Any]:
    """As it stands in a snapshot and in a file."""
    made: dict[str, Any] = msgspec.to_builtins(expectation)
    return made
