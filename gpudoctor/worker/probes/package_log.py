"""The latest changes of NVIDIA's packages, as the package manager has logged them: when, by which program, and what."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List

from gpudoctor.worker.probes.machine import Machine

LOG_BYTES = 256 << 10
MOST_CHANGES, MOST_PACKAGES = 5, 20
APT = "/var/log/apt/history.log"
APT_PACKAGE = re.compile(
    r"""
    ([\w.+-]*nvidia[\w.+-]*) (?: :\w+ )?[ ]
    \( ([^,()]+) (?: ,\ ([^,()]+) )? \)
    """,
    re.VERBOSE,
)
APT_ACTIONS = ("Upgrade", "Downgrade", "Install", "Remove", "Purge", "Reinstall")
LINES = {
    "/var/log/dnf.rpm.log": re.compile(
        r"""
        ^(?P<when>\S+)\ \S+\ (?:Upgrade|Installed|Downgrade):[ ]
        (?P<name>[\w.+-]*nvidia[\w.+-]*?) - (?:\d+:)? (?P<new>[\d.]+) -
        """,
        re.VERBOSE,
    ),
    "/var/log/pacman.log": re.compile(
        r"""
        ^\[ (?P<when>[^]]+) \]\ \[ALPM\]\ (?:upgraded|downgraded|installed)[ ]
        (?P<name>[\w.+-]*nvidia[\w.+-]*)\ \( (?: (?P<old>\S+)\ ->[ ] )? (?P<new>[^)]+) \)
        """,
        re.VERBOSE,
    ),
    "/var/log/zypp/history": re.compile(r"^(?P<when>[^|]+)\|install\|(?P<name>[^|]*nvidia[^|]*)\|(?P<new>[^|]+)\|"),
}
"""Log -> how a change stands in it: one in each line."""


def changes(machine: Machine) -> List[Dict[str, Any]]:
    """The latest first. Who asked for one is not read: the name of a user is private."""
    found = list(_of_apt(machine))
    for path, pattern in LINES.items():
        found += _of_lines(path, _text(machine, path), pattern)
    found.sort(key=lambda change: str(change["when"]), reverse=True)
    return found[:MOST_CHANGES]


def _text(machine: Machine, path: str) -> str:
    return str(machine.call(lambda: machine.read(path, LOG_BYTES)).value or "")


def _of_apt(machine: Machine) -> Iterator[Dict[str, Any]]:
    for block in _text(machine, APT).split("\n\n"):
        said = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        rows = [row for action in APT_ACTIONS for row in APT_PACKAGE.findall(said.get(action, ""))]
        if rows and "Start-Date" in said:
            packages = [_package(name, first, second) for name, first, second in rows]
            by = " ".join(said.get("Commandline", "apt").rsplit("/", 1)[-1].split()[:2])
            yield _change(APT, said["Start-Date"], by, packages)


def _package(name: str, first: str, second: str) -> Dict[str, str]:
    """An upgrade has two versions; an installation has one, and perhaps "automatic"."""
    is_upgrade = second not in ("", "automatic")
    return {"name": name, "old": first if is_upgrade else "", "new": second if is_upgrade else first}


def _of_lines(path: str, text: str, pattern: Any) -> List[Dict[str, Any]]:
    """All lines of one minute are one change."""
    by_minute: Dict[str, List[Dict[str, str]]] = {}
    for line in text.splitlines():
        match = pattern.search(line)
        if match:
            said = match.groupdict()
            package = {"name": said["name"], "old": said.get("old") or "", "new": said["new"]}
            by_minute.setdefault(said["when"].replace("T", " ")[:16], []).append(package)
    tool = {"dnf.rpm.log": "dnf", "pacman.log": "pacman", "history": "zypper"}[path.rsplit("/", 1)[-1]]
    return [_change(path, when, tool, packages) for when, packages in by_minute.items()]


def _change(path: str, when: str, by: str, packages: List[Dict[str, str]]) -> Dict[str, Any]:
    return {
        "log": path,
        "when": " ".join(when.split())[:16],
        "by": by,
        "count": len(packages),
        "packages": packages[:MOST_PACKAGES],
    }
