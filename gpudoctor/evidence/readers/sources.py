"""Where packages come from: `apt policy`, and `snap list`."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor.evidence import prompts
from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_PACKAGE = re.compile(r"^(?P<name>[a-z][\w.+-]+)(?::\w+)?:\s*$")
_FIELD = re.compile(r"^\s+(?P<field>Installed|Candidate): (?P<version>\S+)")
_VERSION = re.compile(r"^\s(?:\*\*\*|\s{3}) (?P<version>\S+)(?: \d+)?\s*$")
_SOURCE = re.compile(r"^\s+-?\d+ (?P<source>https?://\S+|/var/lib/dpkg/status)")
_SNAPS = re.compile(r"^Name\s+Version\s+Rev\s+Tracking\s")


def _policy(command: str, output: str) -> dict[str, Reply] | None:
    """Package -> installed and candidate version, and for each version the hosts that offer it."""
    found: dict[str, dict[str, Any]] = {}
    versions: list[str] = []
    package: dict[str, Any] = {"offered": {}}
    for line in output.splitlines():
        if name := _PACKAGE.match(line):
            package = found[name["name"]] = {"offered": {}}
        elif field := _FIELD.match(line):
            package[field["field"].lower()] = field["version"]
        elif row := _VERSION.match(line):
            versions = package["offered"].setdefault(row["version"], [])
        elif (source := _SOURCE.match(line)) and "://" in source["source"]:
            versions.append(source["source"].split("/")[2])
    known = {name: package for name, package in found.items() if "candidate" in package}
    return {"shown-policy": Reply("ok", known)} if known else None


def _snaps(text: str) -> dict[str, Reply]:
    names = [line.split()[0] for line in text.splitlines()[1:] if line.split()]
    return {"shown-snaps": Reply("ok", dict.fromkeys(names, True))}


def _filtered(command: str, output: str) -> dict[str, Reply] | None:
    names = [match[1] for line in output.splitlines() if (match := re.match(r"\s*([a-z][\w-]*)\s+\S+\s+\d+\s", line))]
    return {"shown-snaps": Reply("ok", dict.fromkeys(names, True))} if names else None


READERS = (
    prompts.reader("apt policy", ("policy ",), r"apt(?:-cache)?\ policy(?:\ \S+)+", _policy, most_lines=200),
    prompts.reader("snap list, filtered", ("snap list",), rf"snap\ list\ *\|\ *{prompts.FILTER}\b.*", _filtered, most_lines=20),
    Reader("snap list", ("Tracking",), _SNAPS, _snaps, re.compile(r"^\s*$|^\S*[$#>] |^```"), 200),
)
