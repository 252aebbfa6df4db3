"""`ls -l /dev/nvidia*`: the nodes with their modes and owners."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_NODE = re.compile(
    r"""
    ^\s*(?P<kind>c|d)(?P<mode>[rwxsStT-]{9})[.+]?\s+\d+
    \s+(?P<user>\S+)\s+(?P<group>\S+)
    \s+(?: (?P<major>\d+),\s*(?P<minor>\d+) | \d+ )            # a folder has a size
    \s+.*?\s(?P<path> /dev/(?:nvidia\S+|dxg) | nvidia[\w-]+ )\s*$
    """,
    re.VERBOSE,
)
_BITS = (0o400, 0o200, 0o100, 0o040, 0o020, 0o010, 0o004, 0o002, 0o001)


def read(text: str) -> dict[str, Reply] | None:
    nodes = dict(_node(match) for match in map(_NODE.match, text.splitlines()) if match)
    return {"devices": Reply("ok", nodes)} if nodes else None


def _node(match: re.Match[str]) -> tuple[str, dict[str, Any]]:
    """It does not show whether this user can open the node, only whether everyone can."""
    kind, letters, user, group, major, minor, path = match.groups()
    mode = sum(bit for bit, letter in zip(_BITS, letters, strict=True) if letter not in "-ST")
    return path if path.startswith("/") else f"/dev/{path}", {
        "type": "character" if kind == "c" else "directory",
        "mode": mode,
        "uid": 0 if user == "root" else -1,
        "gid": 0 if group == "root" else -1,
        "group": group,
        "major": int(major or 0),
        "minor": int(minor or 0),
        "access": mode & 0o006 == 0o006,
        "opened": False,
        "open_error": None,
    }


READER = Reader(
    kind="ls -l /dev/nvidia*",
    anchors=("/dev/nvidia", " nvidiactl"),
    begins=_NODE,
    ends=re.compile(r"^(?!\s*[cdbl-][rwxsStT-]{9}|\s*$|total \d|/dev/nvidia-caps:)"),
    read=read,
    most_lines=500,
)
