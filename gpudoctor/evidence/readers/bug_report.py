"""nvidia-bug-report.log: files and commands of a host, in sections. Other readers read its kernel log and nvidia-smi output.

It is made by root on a host, never in a container: the script needs the kernel log and the driver's folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import lspci, system_texts
from gpudoctor.model import Reply

_RULE = re.compile(r"^_{30,}\s*$", re.MULTILINE)
_FILE = re.compile(r"^\*\*\* (/\S+)( does not exist)?\s*$")
_UNAME = re.compile(r"^uname: (Linux .*)$", re.MULTILINE)
_LSPCI = re.compile(r"^\S*lspci (-nn|-d \"?10de:\S* -v)\b")
_HEX = re.compile(r"^([0-9a-f]{2,3}):((?: [0-9a-f]{2}){16})$")
_INFORMATION = re.compile(r"/proc/driver/nvidia/gpus/[^/]+/information")
_MAKE_LOG = re.compile(r"/var/lib/dkms/nvidia[^/]*/[^/]+/build/make\.log")
FILES = (
    *("/proc/version", "/proc/meminfo", "/proc/modules", "/proc/devices", "/proc/cmdline", "/etc/os-release", "/proc/uptime"),
    *("/proc/driver/nvidia/version", "/proc/driver/nvidia/params"),
)
GLOBS = {
    "glob:/proc/driver/nvidia/gpus/*/information": _INFORMATION,
    "glob:/var/lib/dkms/nvidia*/*/build/make.log": _MAKE_LOG,
}
# Older scripts do not print os-release.
ISSUES = ("/etc/redhat-release", "/etc/fedora-release", "/etc/issue")
# Things that a host does not have; a bug report comes from a host.
ON_A_HOST = {
    "container-marks": Reply("ok", {}),
    "file:/run/systemd/container": Reply("missing"),
    "file:/proc/1/cgroup": Reply("missing"),
    "file:/proc/self/cgroup": Reply("missing"),
}


def read(text: str) -> dict[str, Reply]:
    parts = [part.strip("\n") for part in _RULE.split(text)]
    files = dict(_files(parts))
    wanted = {path: reply for path, reply in files.items() if _is_wanted(path)}
    found = {**ON_A_HOST, **{f"file:{path}": reply for path, reply in wanted.items()}, **_pci(parts)}
    for question, pattern in GLOBS.items():
        found[question] = Reply("ok", sorted(path for path in files if pattern.fullmatch(path)))
    release = next((name for path in ISSUES if (name := _distribution(files.get(path)))), None)
    if "file:/etc/os-release" not in found and release:
        found["file:/etc/os-release"] = Reply("ok", release)
    match = _UNAME.search(text)
    return found | ((system_texts.uname(match[1]) if match else None) or {})


def _files(parts: Iterable[str]) -> Iterator[tuple[str, Reply]]:
    for part in parts:
        head, _, rest = part.partition("\n")
        match = _FILE.match(head)
        if match:
            path = match[1].replace("/./", "/")
            text = rest.partition("\n")[2] if rest.startswith("*** ls: ") else rest
            yield path, Reply("missing") if match[2] else Reply("ok", f"{text}\n")


def _is_wanted(path: str) -> bool:
    return path in FILES or any(pattern.fullmatch(path) for pattern in GLOBS.values())


def _distribution(issue: Reply | None) -> str | None:
    line = (issue.value or "").strip().partition("\n")[0] if issue else ""
    return system_texts.os_release(re.sub(r"\s*\\.*$| release(?= \d)", "", line))


def _pci(parts: Iterable[str]) -> dict[str, Reply]:
    """-nn lists all devices with their ids; -v -xxx shows the driver of NVIDIA devices and whether they respond."""
    listings = {match[1][:3].strip(): part for part in parts if (match := _LSPCI.match(part))}
    found = lspci.read(listings.get("-nn", ""))
    functions: dict[str, Any] = found["pci"].value["functions"] if found else {}
    for address, details in lspci.details(listings.get("-d", "").splitlines()):
        if address in functions:
            functions[address] |= {**lspci.told(details), "all_ones": _all_ones(details)}
    return found or {}


def _all_ones(details: Iterable[str]) -> bool | None:
    """Whether the first 64 bytes of the configuration space read as all ones; None if they are not shown."""
    rows = [match[2].split() for match in map(_HEX.match, details) if match]
    return all(byte == "ff" for row in rows[:4] for byte in row) if rows else None


READER = Reader(
    kind="nvidia-bug-report.log",
    anchors=("Start of NVIDIA bug report log file",),
    begins=re.compile(r"^Start of NVIDIA bug report log file"),
    read=read,
    most_lines=400_000,
    most_bytes=32 << 20,
)
