"""What a descriptor is: a file on which file system, a pipe and who holds its other end, a socket and who answers there.

No file of the program is opened or examined with stat(2): on a file system that does not answer, that would hang as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from gpudoctor.jobs.hanging.proc import Proc, Stat
from gpudoctor.jobs.hanging.sockets import Sockets

MOST_HOLDERS = 4
_INODE = re.compile(r"(?:pipe|socket):\[(\d+)\]")
_ACCESS = {0: "r", 1: "w", 2: "rw"}
_OCTAL = re.compile(r"\\([0-7]{3})")


class Descriptors:
    """The open files of all processes that may be read. pids: those whose descriptors matter."""

    def __init__(self, proc: Proc, pids: Iterable[int], everyone: Mapping[int, Stat]) -> None:
        self._proc = proc
        self._pids = tuple(pids)
        self._everyone = everyone

    @cached_property
    def _sockets(self) -> Sockets:
        return Sockets(self._proc, self._pids[0] if self._pids else 0)

    @cached_property
    def _holders(self) -> dict[str, list[tuple[int, str]]]:
        """What /proc/PID/fd calls a pipe, a FIFO or a socket -> the processes that have it open, and their descriptors."""
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for pid in self._everyone:
            for fd in self._proc.names(pid, "fd"):
                target = self._proc.link(pid, f"fd/{fd}")
                if not target.startswith("anon_inode:"):
                    found[target].append((pid, fd))
        return found

    def of(self, pid: int, fd: int) -> dict[str, Any] | None:
        """{"fd", "kind", "path", ...} of an open descriptor; None if it cannot be read."""
        target = self._proc.link(pid, f"fd/{fd}")
        if not target:
            return None
        found: dict[str, Any] = {"fd": fd, "access": self._access(pid, str(fd))}
        if target.startswith("pipe:"):
            return {**found, "kind": "pipe", **self._ends(pid, target, found["access"])}
        if target.startswith("socket:"):
            return {**found, "kind": "socket", **self._socket(pid, target)}
        if target.startswith("anon_inode:"):
            return {**found, "kind": target.partition(":")[2].strip("[]")}
        return {**found, **self.path(pid, target)}

    def path(self, pid: int, path: str) -> dict[str, Any]:
        """{"kind", "path", "fs", "mount", "source"} of a path, from the mount table alone."""
        if path.startswith(("/dev/pts/", "/dev/tty")) or path == "/dev/console":
            return {"kind": "terminal", "path": path}
        if path.startswith("/dev/") and not path.startswith("/dev/shm/"):
            return {"kind": "device", "path": path}
        return {"kind": "file", "path": path, **self._mount(pid, path)}

    def fifo(self, pid: int, path: str, access: str) -> dict[str, Any]:
        """A FIFO that is waited for, and who else has it open."""
        return {"kind": "fifo", "path": path, **self._ends(pid, path, access)}

    def epolled(self, pid: int, fd: int) -> list[int]:
        """The descriptors that an epoll descriptor waits for."""
        text = self._proc.text(pid, f"fdinfo/{fd}", 1 << 16)
        return [int(number) for number in re.findall(r"^tfd:\s*(\d+)", text, re.MULTILINE)]

    def _access(self, pid: int, fd: str) -> str:
        flags = re.search(r"^flags:\s*([0-7]+)", self._proc.text(pid, f"fdinfo/{fd}", 4096), re.MULTILINE)
        return _ACCESS.get(int(flags[1], 8) & 3, "") if flags else ""

    def _ends(self, pid: int, target: str, access: str) -> dict[str, Any]:
        """The other processes at a pipe. others: those at its other end, of which there is none in `alone`."""
        ends = [(other, self._access(other, fd)) for other, fd in self._holders.get(target, ())]
        wanted = "w" if access == "r" else "r"
        others = list(dict.fromkeys(other for other, how in ends if wanted in how and other != pid))
        own = any(other == pid and wanted in how for other, how in ends)
        holders = [self._named(other) for other in others[:MOST_HOLDERS]]
        return {"holders": holders, "alone": not others and not own, "own_end": own and not others}

    def _socket(self, pid: int, target: str) -> dict[str, Any]:
        inode = int(_INODE.fullmatch(target)[1])  # type: ignore[index]
        found = self._sockets.of(inode)
        peer = self._sockets.peer(inode)
        holders: list[int] = []
        if peer:
            holders = [other for other, _ in self._holders.get(f"socket:[{peer}]", ())]
        named = [self._named(other) for other in dict.fromkeys(holders) if other != pid or len(holders) == 1]
        return {**found, "holders": named[:MOST_HOLDERS]}

    def _named(self, pid: int) -> dict[str, Any]:
        stat = self._everyone.get(pid)
        return {"pid": pid, "name": stat.name if stat else "", "state": stat.state if stat else ""}

    def _mount(self, pid: int, path: str) -> dict[str, str]:
        """The mount that holds a path: the one with the longest matching mount point, the last one of equals."""
        best: dict[str, str] = {}
        for line in self._proc.text(pid, "mountinfo").splitlines():
            fields, dash, rest = line.partition(" - ")
            words, kinds = fields.split(" "), rest.split(" ")
            if not dash or len(words) < 5 or len(kinds) < 2:
                continue
            point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), words[4])
            if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best.get("mount", "")):
                best = {"mount": point, "fs": kinds[0], "source": kinds[1]}
        return best


def locks(proc: Proc) -> list[dict[str, Any]]:
    """The waiting file locks of /proc/locks, each with its holder: [{"pid", "holder", "kind", "inode"}]."""
    try:
        lines = (proc.root / "locks").read_text(errors="replace").splitlines()
    except OSError:
        return []
    found, holders = [], {}
    for line in lines:
        words = line.replace("-> ", "").split()
        if len(words) < 6 or not words[4].lstrip("-").isdigit():
            continue
        number, kind, pid, inode = words[0], words[1], int(words[4]), words[5]
        if "-> " not in line:
            holders[number] = pid
        else:
            found.append({"pid": pid, "holder": holders.get(number, 0), "kind": kind, "inode": inode.rpartition(":")[2]})
    return found
