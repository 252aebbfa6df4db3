"""The files of /proc that say what a process does, each read with a limit on its size."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 1 << 20
MOST_LINE = 300  # characters of a command line
MOST_THREADS = 128
TICKS = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """/proc/PID/stat. ticks: of the processor, for all its threads. started: in ticks since the boot."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    ticks: int
    started: int


class Proc:
    """The processes of this machine. What is gone or not permitted reads as empty; `denied` remembers the latter."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = root
        self.denied: set[int] = set()

    def text(self, pid: int, name: str, most: int = MOST_BYTES) -> str:
        return self.raw(pid, name, most).decode("utf-8", "replace")

    def raw(self, pid: int, name: str, most: int = MOST_BYTES) -> bytes:
        try:
            with (self.root / str(pid) / name).open("rb") as file:
                return file.read(most)
        except PermissionError:
            self.denied.add(pid)
        except OSError:
            pass
        return b""

    def link(self, pid: int, name: str) -> str:
        try:
            return str((self.root / str(pid) / name).readlink())
        except PermissionError:
            self.denied.add(pid)
        except OSError:
            pass
        return ""

    def names(self, pid: int, folder: str) -> list[str]:
        """The numbered entries of a folder, such as task or fd, in order."""
        try:
            return sorted(filter(str.isdigit, os.listdir(self.root / str(pid) / folder)), key=int)  # noqa: PTH208 (names)
        except PermissionError:
            self.denied.add(pid)
        except OSError:
            pass
        return []

    def pids(self) -> list[int]:
        return [int(name) for name in os.listdir(self.root) if name.isdigit()]  # noqa: PTH208 (names)

    def stat(self, pid: int, thread: int | None = None) -> Stat | None:
        """Of a process, or of one of its threads. None if it is gone."""
        name = "stat" if thread is None else f"task/{thread}/stat"
        text = self.text(pid, name, 4096)
        title, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) < 20:
            return None
        numbers = [int(field) for field in fields[1:20]]
        return Stat(pid, title, fields[0], numbers[0], numbers[1], numbers[2], numbers[10] + numbers[11], numbers[18])

    def everyone(self) -> dict[int, Stat]:
        return {pid: stat for pid in self.pids() if (stat := self.stat(pid))}

    def status(self, pid: int, *names: str) -> dict[str, str]:
        """Fields of /proc/PID/status."""
        lines = (line.partition(":") for line in self.text(pid, "status").splitlines())
        return {name: value.strip() for name, _, value in lines if name in names}

    def line(self, pid: int) -> str:
        """The command line, shortened."""
        words = self.text(pid, "cmdline", 4 * MOST_LINE).rstrip("\0").replace("\0", " ")
        text = " ".join(words.split())
        return text if len(text) <= MOST_LINE else text[:MOST_LINE] + "…"

    def variables(self, pid: int) -> dict[str, str]:
        """What it was started with; what it set itself later is not there."""
        entries = (entry.partition("=") for entry in self.text(pid, "environ").split("\0"))
        return {name: value for name, equals, value in entries if equals}

    def moved_bytes(self, pid: int) -> int:
        """Read and written, of any kind: files, pipes, sockets (rchar and wchar of proc(5))."""
        lines = (line.partition(":") for line in self.text(pid, "io").splitlines())
        return sum(int(value) for name, _, value in lines if name in ("rchar", "wchar") and value.strip().isdigit())

    def memory(self, pid: int, address: int, size: int) -> bytes:
        """Bytes of its memory; empty if that is not permitted."""
        with (
            contextlib.suppress(OSError, ValueError, OverflowError),
            (self.root / str(pid) / "mem").open("rb", buffering=0) as file,
        ):
            file.seek(address)
            return file.read(size)
        return b""

    def polled(self, pid: int, address: int, count: int) -> list[int]:
        """The descriptors that poll(2) waits for."""
        data = self.memory(pid, address, 8 * min(count, 64))
        return [fd for fd, _, _ in struct.iter_unpack("ihh", data[: len(data) // 8 * 8]) if fd >= 0]

    def words(self, pid: int, address: int) -> str:
        """A text in its memory that ends with NUL, such as a path."""
        data = self.memory(pid, address, min(256, 4096 - address % 4096))
        return data.partition(b"\0")[0].decode("utf-8", "replace")


def below(everyone: dict[int, Stat], root: int) -> list[int]:
    """A process and its descendants, parents before children."""
    children: dict[int, list[int]] = {}
    for stat in everyone.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    found = [root] if root in everyone else []
    for pid in found:
        found += [child for child in sorted(children.get(pid, ())) if child not in found[:1]]
    return found
