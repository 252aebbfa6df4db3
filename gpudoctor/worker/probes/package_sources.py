"""APT's sources of NVIDIA's packages, and lines in their files that APT cannot read."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Tuple

from gpudoctor.worker.probes.machine import Machine

FILES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources")
FILE_BYTES = 64 << 10
OF_NVIDIA = re.compile(r"https?://[^/\s]*nvidia[^\s]*")
ONE_LINE = re.compile(r"^deb(?:-src)?\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)")
SIGNED = re.compile(r"signed-by=(\S+)", re.IGNORECASE)
NAMED_SO = re.compile(r"nvidia|cuda", re.IGNORECASE)


def sources(machine: Machine) -> Dict[str, Any]:
    """Only NVIDIA's: others can name a site's own servers. malformed: files that APT refuses, which stops all of it."""
    if not os.path.isdir(machine.path("/etc/apt")):
        raise FileNotFoundError("/etc/apt")
    entries: List[Dict[str, Any]] = []
    malformed: List[Dict[str, Any]] = []
    for path in [path for pattern in FILES for path in machine.matching(pattern)]:
        text = str(machine.call(lambda path=path: machine.read(path, FILE_BYTES)).value or "")  # type: ignore[misc]
        found = _blocks(text) if path.endswith(".sources") else _lines(text)
        entries += [dict(entry, file=path, key_exists=_exists(machine, entry["signed_by"])) for entry in found]
        if NAMED_SO.search(os.path.basename(path)) and path.endswith(".list"):
            malformed += [{"file": path, "line": number} for number in _unreadable(text)][:1]
    return {"entries": entries, "malformed": malformed}


def _lines(text: str) -> Iterator[Dict[str, str]]:
    for line in text.splitlines():
        match = ONE_LINE.match(line.strip())
        if match and OF_NVIDIA.match(match["uri"]) and line.strip().startswith("deb "):
            key = SIGNED.search(match["options"] or "")
            yield {"uri": match["uri"].rstrip("/"), "suite": match["suite"], "signed_by": key[1] if key else ""}


def _blocks(text: str) -> Iterator[Dict[str, str]]:
    for block in re.split(r"\n\s*\n", text):
        fields = dict(_fields(block))
        if fields.get("enabled", "yes").lower() == "no":
            continue
        key = fields.get("signed-by", "")
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                if OF_NVIDIA.match(uri):
                    yield {"uri": uri.rstrip("/"), "suite": suite, "signed_by": key if key.startswith("/") else key and "inline"}


def _fields(block: str) -> Iterator[Tuple[str, str]]:
    for line in block.splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith((" ", "#")):
            yield name.strip().lower(), value.strip() or "inline"


def _unreadable(text: str) -> List[int]:
    """The numbers of lines that are neither sources nor comments, such as those of a page that was saved instead of a list."""
    return [number for number, line in enumerate(text.splitlines(), 1) if line.strip() and not _is_readable(line.strip())]


def _is_readable(line: str) -> bool:
    return line.startswith("#") or ONE_LINE.match(line) is not None


def _exists(machine: Machine, key: str) -> bool:
    return not key.startswith("/") or os.path.lexists(machine.path(key))
