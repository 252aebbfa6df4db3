"""The processes below another one, from /proc."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

STATES = {"R": "running", "S": "waiting", "D": "waiting in the kernel, which no signal ends", "T": "stopped", "Z": "ended"}
MOST = 8


class Process(NamedTuple):
    """wchan: the function of the kernel in which it waits, "" if unknown."""

    pid: int
    name: str
    state: str
    wchan: str

    def __str__(self) -> str:
        where = f" ({self.wchan})" if self.wchan else ""
        return f"{self.name} (pid {self.pid}) is {STATES.get(self.state, self.state)}{where}"


def below(root: int) -> list[Process]:
    """All descendants that still run, the oldest first."""
    parents: dict[int, int] = {}
    found: dict[int, Process] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        stat = _text(entry / "stat")
        name, _, rest = stat.partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) > 1:
            pid = int(entry.name)
            parents[pid] = int(fields[1])
            found[pid] = Process(pid, name, fields[0], "")
    ours = [pid for pid in sorted(found) if _is_below(pid, root, parents) and found[pid].state != "Z"]
    return [found[pid]._replace(wchan=_wchan(pid)) for pid in ours]


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    seen = set()
    while pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
        if pid == root:
            return True
    return False


def _wchan(pid: int) -> str:
    name = _text(Path(f"/proc/{pid}/wchan")).strip()
    return "" if name == "0" else name


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
