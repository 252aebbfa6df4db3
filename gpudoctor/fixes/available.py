"""Leaves out what this release of the distribution cannot install."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpudoctor.fixes.distribution import Distribution
from gpudoctor.knowledge import apt
from gpudoctor.model import Fix

INSTALL = re.compile(r"\bapt(?:-get)?(?: -\S+)* install((?: (?:\$\([^)]*\)|[^\s&|;()`\"'$]|['\"])+)+)")
WORD = re.compile(r"(?:\$\([^)]*\)|[^\s])+")
NAME = r"[a-z0-9][a-z0-9.+-]+"
OR = " || "


def installable(fixes: Iterable[Fix], machine: Distribution) -> Iterator[Fix]:
    """The fixes whose packages exist; packages in no table may exist. Of alternatives, those that can work."""
    for fix in fixes:
        ways = [way for way in fix.command.split(OR) if all(may_exist(name, machine) for name in installed_by_apt(way))]
        if ways:
            yield replace(fix, command=OR.join(ways))


def may_exist(package: str, machine: Distribution) -> bool:
    """What NVIDIA's repository has is in no table."""
    if package in machine.packages or machine.source == "nvidia":
        return True
    return apt.offers(f"{machine.distribution} {machine.version}", package) is not False


def installed_by_apt(command: str) -> Iterator[str]:
    """The names of the packages that a command installs; of a name with a $(…) in it, what comes before."""
    for install in INSTALL.finditer(command):
        for word in WORD.findall(install[1]):
            name = re.split(r"[=/$<:]", word.strip("'\""))[0]
            if re.fullmatch(NAME, name):
                yield name
