"""Which packages the archives of Debian and Ubuntu have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from gpudoctor.knowledge.tables import Row, Table, load


class Package(Row, frozen=True, kw_only=True):
    """Releases look like "debian 12". A name that ends with * is the beginning of names."""

    name: str
    releases: tuple[str, ...]


class Numbered(Row, frozen=True, kw_only=True):
    """A name with # in the place of a number, and the numbers that each release has."""

    name: str
    releases: Mapping[str, tuple[int, ...]]


class Added(Row, frozen=True, kw_only=True):
    """Packages of a repository that has to be added first."""

    repository: str
    names: tuple[str, ...]


class Packages(Table, frozen=True, kw_only=True):
    archive: tuple[Package, ...]
    numbered: tuple[Numbered, ...]
    added: tuple[Added, ...]


@cache
def table() -> Packages:
    return load("apt", Packages)


@cache
def releases() -> frozenset[str]:
    """The releases whose archives were read."""
    return frozenset(release for row in table().archive for release in row.releases)


@cache
def offers(release: str, name: str) -> bool | None:
    """Whether a release ("ubuntu 24.04") has a package, in its archive or in a repository that can be added; None if unknown."""
    known = [*_in_archive(name), *_in_added(name)]
    if not known or release not in releases():
        return None
    return any(release in found for found in known)


def _in_archive(name: str) -> list[frozenset[str]]:
    found = [frozenset(row.releases) for row in table().archive if _is(row.name, name)]
    return [*found, *(_with(int(match[1]), row) for row in table().numbered if (match := _pattern(row.name).fullmatch(name)))]


def _with(number: int, row: Numbered) -> frozenset[str]:
    return frozenset(release for release, numbers in row.releases.items() if number in numbers)


def _in_added(name: str) -> list[frozenset[str]]:
    return [releases() for row in table().added for listed in row.names if _pattern(listed).fullmatch(name)]


def _is(listed: str, name: str) -> bool:
    return name.startswith(listed[:-1]) if listed.endswith("*") else listed == name


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\#", r"(\d+)"))
