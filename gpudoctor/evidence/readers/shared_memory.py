"""Who fills /dev/shm: `ls -l /dev/shm`, and the row of `df` that grep leaves."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import disks
from gpudoctor.model import Reply

_FILE = re.compile(
    r"""
    ^\s*-[rwxsStT-]{9}[.+]?\s+\d+\s+\S+\s+\S+
    \s+(?P<size>[\d.]+[KMGT]?)
    \s+.*\s(?:/dev/shm/)?(?P<name>nccl-\S+)\s*$
    """,
    re.VERBOSE,
)
_ROW = re.compile(r"^\s*\S+\s+[\d.]+[KMGT]i?\s+[\d.]+\w*\s+[\d.]+\w*\s+\d+%\s+/dev/shm\s*$")


def _files(text: str) -> dict[str, Reply]:
    rows = [match for match in map(_FILE.match, text.splitlines()) if match]
    sizes = {match["name"]: disks.size_of(match["size"]) for match in rows}
    return {"shown-nccl-files": Reply("ok", sizes)}


def _row(text: str) -> dict[str, Reply] | None:
    return disks.read(f"Filesystem Size Used Avail Use% Mounted on\n{text}")


READERS = (
    Reader("ls -l /dev/shm", (" nccl-", "/nccl-"), _FILE, _files, re.compile(r"^(?!\s*-[rwxsStT-]{9})"), 4000),
    Reader("df | grep", ("% /dev/shm",), _ROW, _row, re.compile(""), 1, alone=True),
)
