"""Which packages the distributions with dnf, zypper and pacman have."""

from __future__ import annotations

import re
from functools import cache

from gpudoctor.knowledge.tables import Row, Table, load


class Packages(Row, frozen=True, kw_only=True):
    """Names, with # for a number, and * for the rest. Releases look like "rhel 9", or "rhel" for all."""

    manager: str
    names: tuple[str, ...]
    releases: tuple[str, ...]


class Distributions(Table, frozen=True, kw_only=True):
    packages: tuple[Packages, ...]


@cache
def table() -> Distributions:
    return load("distributions", Distributions)


@cache
def offers(manager: str, release: str, name: str) -> bool | None:
    """Whether a release ("rhel 9") has a package, in its own repositories or in one that can be added; None if unknown."""
    rows = [row for row in table().packages if row.manager == manager and any(_is(listed, name) for listed in row.names)]
    if not rows or not release:
        return None
    distribution = release.split(" ")[0]
    is_listed = any(each.split(" ")[0] == distribution for row in table().packages for each in row.releases)
    return any({release, distribution} & set(row.releases) for row in rows) if is_listed else None


def knows(manager: str, name: str) -> bool:
    return any(_is(listed, name) for row in table().packages if row.manager == manager for listed in row.names)


def _is(listed: str, name: str) -> bool:
    return _pattern(listed).fullmatch(name) is not None


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\#", r"\d+").replace(r"\*", ".+"))
