"""One installed package, as listed by pip or conda, and build facts that some packages store in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from packaging import utils
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from gpudoctor.facts.guarded import Guarded
from gpudoctor.model import Unavailable

canonicalize_name = lru_cache(4096)(utils.canonicalize_name)  # checks ask for the same few packages again and again


@dataclass(frozen=True)
class Package(Guarded):
    """A distribution on sys.path; `file` is where it was installed from, if not from an index."""

    name: str  # as spelled in its folder's name
    version: str
    location: str
    installer: str | None = None
    build: str | None = None
    file: str | None = None
    stated_requires: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()  # what its wheel was built for

    @property
    def requires(self) -> tuple[str, ...]:
        """The raw Requires-Dist lines; read only for the packages that GPU work depends on."""
        if self.stated_requires is None:
            raise Unavailable(f"the requirements of {self.name} were not read")
        return self.stated_requires

    def requirement(self, beginning: str) -> Requirement | None:
        """The first requirement on a package whose name begins like this, from any extra; None if not found."""
        wanted = (parsed for line in self.requires if (parsed := requirement(line)))
        return next((parsed for parsed in wanted if canonicalize_name(parsed.name).startswith(beginning)), None)


@dataclass(frozen=True)
class Differing(Guarded):
    """Files of one package that differ from its RECORD: how many in all, and the first of them."""

    package: str
    location: str
    kind: str  # missing, truncated, changed, or other: the same size, but another content
    count: int
    files: tuple[str, ...]


def differing(records: list[Mapping[str, Any]]) -> tuple[Differing, ...]:
    return tuple(
        Differing(record["name"], record["location"], kind, record[kind]["count"], tuple(record[kind]["files"]))
        for record in records
        for kind in ("truncated", "missing", "changed", "other")
        if record.get(kind)
    )


@dataclass(frozen=True)
class CondaPackage(Guarded):
    """A package that conda installed."""

    name: str
    version: str
    build: str
    channel: str | None


@cache
def requirement(line: str) -> Requirement | None:
    """The requirement in a Requires-Dist line (cached: parsing is slow and packages repeat lines); None if it is invalid."""
    try:
        return Requirement(line)
    except InvalidRequirement:  # a package from before the standard
        return None


def oldest_of(requirement: Requirement) -> Version:
    """The oldest version that a requirement names: 9.8 for <10.0,>=9.8 and for ==9.8.*; 0 if it names none."""
    named = (part.version for part in requirement.specifier if part.operator in (">=", "==", "~="))
    return min((Version(version.removesuffix(".*")) for version in named), default=Version("0"))


def by_name(records: list[Mapping[str, Any]]) -> dict[str, tuple[Package, ...]]:
    """Normalised name -> packages, in the order of sys.path: the first one is imported."""
    packages: dict[str, tuple[Package, ...]] = {}
    for record in records:
        name = canonicalize_name(record["name"])
        packages[name] = (*packages.get(name, ()), _package(record))
    return packages


def _package(record: Mapping[str, Any]) -> Package:
    requires = record.get("requires")
    origin = record.get("direct_url") or {}
    return Package(
        name=record["name"],
        version=record["version"],
        location=record["location"],
        installer=record.get("installer"),
        build=record.get("build"),
        file=origin.get("file"),
        stated_requires=None if requires is None else tuple(requires),
        tags=tuple(record.get("tags") or ()),
    )


def assigned(text: str, name: str) -> str | None:
    """The string or None that a line of Python such as `cuda: Optional[str] = '12.8'` assigns.

    >>> assigned("cuda: Optional[str] = '12.8'", "cuda")
    '12.8'
    """
    match = re.search(rf"""^{name}\s*(?::[^=\n]*)?=\s*(?:None|(['"])(.*?)\1)\s*(?:#.*)?$""", text, re.MULTILINE)
    if match is None:
        raise Unavailable(f"no assignment to {name}")
    return match[2]
