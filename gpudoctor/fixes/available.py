"""Leaves out what this release of the distribution cannot install."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpudoctor.fixes.distribution import Distribution
from gpudoctor.knowledge import apt, distributions
from gpudoctor.model import Fix

INSTALL = re.compile(r"\bapt(?:-get)?(?: -\S+)* install((?: (?:\$\([^)]*\)|[^\s&|;()`\"'$]|['\"])+)+)")
OTHERS = re.compile(
    r"""
    \b(dnf|zypper|pacman)(?:\ -\S+)*\ (?:install|in|reinstall|-S\S*)  # what it does
    ((?:\ (?:\$\([^)]*\)|[^\s&|;()])+)+)
    """,
    re.VERBOSE,
)
ENTERPRISE = ("rhel", "rocky", "almalinux", "ol", "centos")
WORD = re.compile(r"(?:\$\([^)]*\)|[^\s])+")
NAME = r"[a-z0-9][a-z0-9.+-]+"
OR = " || "
GROUP = re.compile(r"(?<!\$)\(((?:\$\([^()]*\)|[^()])*)\)")


def installable(fixes: Iterable[Fix], machine: Distribution) -> Iterator[Fix]:
    """The fixes whose packages exist; packages in no table may exist. Of alternatives, those that can work."""
    for fix in fixes:
        command = _without_missing(fix.command, machine)
        if command is not None:
            yield replace(fix, command=command)


def _without_missing(command: str, machine: Distribution) -> str | None:
    """Alternatives in parentheses are tried first, so that no parenthesis stays open."""
    if _all_exist(command, machine):
        return command
    for group in GROUP.finditer(command):
        ways = [way for way in group[1].split(OR) if _all_exist(way, machine)]
        if OR in group[1] and ways and not _all_exist(group[1], machine):
            kept = f"({OR.join(ways)})" if len(ways) > 1 else ways[0]
            return _without_missing(command.replace(group[0], kept), machine)
    if GROUP.search(command):
        return None
    return OR.join(way for way in command.split(OR) if _all_exist(way, machine)) or None


def _all_exist(command: str, machine: Distribution) -> bool:
    release = release_of(machine)
    return all(may_exist(name, machine) for name in installed_by_apt(command)) and all(
        name in machine.packages or distributions.offers(manager, release, name) is not False
        for manager, name in installed_by_others(command)
    )


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


def release_of(machine: Distribution) -> str:
    """As the table of packages names it: "rhel 9" for all of its rebuilds, "leap 15", "arch"; "" if it is another one."""
    if machine.distribution in ENTERPRISE:
        return f"rhel {machine.major}" if machine.major else "rhel"
    if machine.distribution in ("fedora", "amzn"):
        return f"{machine.distribution} {machine.major}" if machine.major else machine.distribution
    if machine.family == "suse":
        name = machine.distribution.removeprefix("opensuse-")
        return name if name == "tumbleweed" else f"{name if name == 'leap' else 'sles'} {machine.major}"
    return "arch" if machine.family == "arch" else ""


def installed_by_others(command: str) -> Iterator[tuple[str, str]]:
    """The manager, and the name of each package that dnf, zypper or pacman installs; what has a $(…) in it, without that."""
    for install in OTHERS.finditer(command):
        for word in WORD.findall(install[2]):
            name = re.split(r"[=$<]", word.strip("'\""))[0].rstrip("-")
            if re.fullmatch(r"[A-Za-z0-9][\w.+-]*", name) and "<" not in word and "${" not in word:
                yield install[1], re.sub(r"-\d+(?:\.\d+){2,}$", "", name)
