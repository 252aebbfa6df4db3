"""Replies from the shell of a container without Python: fewer than from Python, and marked as reduced."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpudoctor.containers.target.inside import Inside
from gpudoctor.model import Reply
from gpudoctor.worker.probes import container, environment, limits, system
from gpudoctor.worker.probes.machine import Machine

REDUCED = "reduced"
NONE = "the container has no Python (for a full check: uv python install 3.12 on this host)"
OLD = "the container's Python is older than 3.8"
BROKEN = "the container's Python does not start"
LESS = "only a limited check with its shell was possible, which cannot load libraries or use a GPU"
KERNEL = tuple(f"/proc/sys/kernel/{name}" for name in ("osrelease", "arch", "ostype"))
PROCESS = tuple(f"/proc/self/{name}" for name in ("status", "mountinfo", "limits"))
FILES = (*system.FILES, *system.DRIVER_FILES, *container.FILES, *PROCESS, *KERNEL, "/proc/cpuinfo", "/proc/cmdline")
KEPT = re.compile(r"file:|glob:/proc/driver/|(container-marks|mounts|uname|processor)$")  # replies that need only these files
NODE = re.compile(
    r"""
    ^(?P<access>[01])\ c\S+\ +\d+                 # whether this user can open it, its mode, its links
    \ +(?P<uid>\d+)\ +(?P<gid>\d+)
    \ +(?P<major>\d+),\ +(?P<minor>\d+)
    \ .*?(?P<path>/\S+)$
    """,
    re.VERBOSE,
)
MODE = {"r": 4, "w": 2, "x": 1}


def replies(inside: Inside) -> dict[str, Reply]:
    """The replies of a container in which only a shell can be used."""
    return replies_of(inside.look(FILES), inside.marker)


def replies_of(lines: Iterable[bytes], marker: str) -> dict[str, Reply]:
    """The replies in what serve.sh printed."""
    shown = sections(lines, marker)
    with tempfile.TemporaryDirectory(prefix="gpudoctor-") as root:
        for what, text in shown.items():
            kind, _, path = what.partition(" ")
            if kind in ("file", "mark"):
                _write(Path(root), path, text)
        machine = Machine(root)
        asked = [*system.ask(machine), *container.ask(machine), *limits.ask(machine)]
    asked = [(question, reply) for question, reply in asked if KEPT.match(question)]
    denied = {"file:" + what.partition(" ")[2]: Reply("denied") for what in shown if what.startswith("denied ")}
    variables = dict(line.partition("=")[::2] for line in _text(shown, "environment").splitlines() if "=" in line)
    nodes = dict(filter(None, map(_node, _text(shown, "nodes").splitlines())))
    said = {
        "environment": environment.variables(variables),
        "devices": nodes,
        "identity": _identity(_text(shown, "identity").split()),
        "shm": _space(_text(shown, "shm")),
        "command:ldconfig -p": {"code": 0, "out": _text(shown, "ldconfig"), "err": ""} if _text(shown, "ldconfig") else None,
        "command:nvidia-smi -L": _smi(_text(shown, "smi")),
    }
    reduced = _reduced({what.partition(" ")[2]: _text(shown, what) for what in shown if what.startswith("broken ")})
    return {
        **dict(asked),
        **denied,
        **{question: Reply("ok", value) for question, value in said.items() if value is not None},
        **reduced,
    }


def _reduced(broken: Mapping[str, str]) -> dict[str, Reply]:
    """Why only the shell was used. broken: path of an unusable Python -> its error output, or its old version."""
    if not broken:
        return {REDUCED: Reply("ok", f"{NONE}: {LESS}")}
    python, words = next(iter(broken.items()))
    if words.startswith("version "):
        return {REDUCED: Reply("ok", f"{OLD}: {LESS}")}
    return {REDUCED: Reply("ok", f"{BROKEN}: {LESS}"), "broken-python": Reply("ok", {"python": python, "words": words.strip()})}


def _write(root: Path, path: str, text: bytes) -> None:
    """Writes below the root, whatever the names of the container's files."""
    place = root / path.lstrip("/")
    if path.startswith("/") and ".." not in place.parts:
        with contextlib.suppress(OSError, ValueError):  # invalid names, or a file below a file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text)


def sections(lines: Iterable[bytes], marker: str) -> dict[str, bytes]:
    """ "file /etc/os-release" and so on -> the text of that section."""
    found: dict[str, list[bytes]] = {}
    name, prefix = "", (marker + "@").encode()
    for line in lines:
        if line.startswith(prefix):
            name = line[len(prefix) :].decode("utf-8", "replace")
        found.setdefault(name, []).append(line)
    return {name: b"\n".join(shown[1:-1] if shown[-1] == b"" else shown[1:]) + b"\n" for name, shown in found.items() if name}


def _text(shown: Mapping[str, bytes], name: str) -> str:
    return shown.get(name, b"").decode("utf-8", "replace")


def _node(line: str) -> tuple[str, dict[str, Any]] | None:
    """Parses whether this user can open it, and its line of `ls -lnd`: 1 crw-rw-rw- 1 0 0 195, 255 Nov 21 07:12 /dev/nvidia0."""
    found = NODE.match(line)
    if not found:
        return None
    numbers = {name: int(found[name]) for name in ("uid", "gid", "major", "minor")}
    mode = sum(MODE.get(letter, 0) << (6 - 3 * (place // 3)) for place, letter in enumerate(line[3:12]))
    about = {"type": "character", "mode": mode, "access": found["access"] == "1", "opened": False, "open_error": None}
    return found["path"], {**about, **numbers}


def _identity(words: list[str]) -> dict[str, Any] | None:
    if len(words) < 2 or not all(word.isdecimal() for word in words):
        return None
    return {"uid": int(words[0]), "gid": int(words[1]), "groups": dict.fromkeys(words[1:], ""), "owners": {}}


def _space(text: str) -> dict[str, Any] | None:
    """Parses the second line of `df -k`: blocks, used, available."""
    found = re.search(r" (\d+) +\d+ +(\d+) +\d+% ", text)
    if not found:
        return None
    return {"bytes": int(found[1]) << 10, "free_bytes": int(found[2]) << 10, "writable": True, "noexec": False}


def _smi(text: str) -> dict[str, Any] | None:
    """None if nvidia-smi is not installed, for which the shell's exit code is 127."""
    out, _, code = text.rstrip().rpartition("code ")
    return {"code": int(code), "out": out, "err": ""} if re.fullmatch(r"[0-9]{1,3}", code) and code != "127" else None
