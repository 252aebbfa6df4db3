"""New lines of the kernel log: from /dev/kmsg, else from the ring buffer, else from the journal."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import List, Optional, Tuple

from gpudoctor.worker.probes import kernel_log
from gpudoctor.worker.probes.machine import Machine

KMSG = "/dev/kmsg"
JOURNAL = ("journalctl", "-k", "-f", "-n", "0", "-q", "-o", "short-monotonic")
JOURNAL_STARTS_SECONDS = 0.5
RING_BUFFER_EVERY = 5.0  # seconds: it is copied whole
LONGEST_RECORD = 8192
MOST_LINES = 400  # that are kept in one run


class KernelMessages:
    """source: how it is read, "" if it cannot be; then why has the reason."""

    def __init__(self, kmsg: str = KMSG) -> None:
        self.source, self.why = "", ""
        self._left = MOST_LINES
        self._descriptor = -1
        self._journal: Optional[subprocess.Popen[bytes]] = None
        self._rest = b""
        self._seen: Tuple[float, int] = (0.0, 0)  # the last stamp of the ring buffer, and how many lines have it
        self._next = 0.0
        refusals = []
        for name, start in (("kmsg", self._open), ("ring buffer", self._look), ("journal", self._follow)):
            try:
                start(kmsg)
                self.source = name
                return
            except (OSError, subprocess.SubprocessError) as failure:
                refusals.append("%s: %s" % (name, failure.strerror if isinstance(failure, OSError) else failure))
        self.why = "; ".join(refusals)

    def read(self) -> List[str]:
        """The lines since the last call that concern GPUs and what they depend on, as `[  12.345678] text`. Never blocks."""
        lines: List[str] = []
        with contextlib.suppress(OSError):
            lines = {"kmsg": self._records, "ring buffer": self._newer, "journal": self._heard}.get(self.source, list)()
        kept = [line for line in lines if kernel_log.is_relevant(line)][: self._left]
        self._left -= len(kept)
        return kept

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if self._journal:
            self._journal.kill()
            self._journal.communicate()

    def _open(self, kmsg: str) -> None:
        self._descriptor = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def _records(self) -> List[str]:
        """https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg"""
        found: List[str] = []
        while True:
            try:
                record = os.read(self._descriptor, LONGEST_RECORD)
            except BlockingIOError:
                return found
            except BrokenPipeError:  # what was not read yet was overwritten; the next read goes on behind it
                continue
            if not record:
                return found
            found += filter(None, [line_of(record.decode("utf-8", "replace"))])

    def _look(self, kmsg: str) -> None:
        lines = kernel_log.ring_buffer(Machine("/"))
        if not lines:
            raise OSError(0, "it is empty")
        if any("Starting gVisor" in line for line in lines):
            raise OSError(0, "it is gVisor's own, not the host's")
        self._unseen(lines)
        self._next = time.monotonic() + RING_BUFFER_EVERY

    def _newer(self) -> List[str]:
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + RING_BUFFER_EVERY
        return self._unseen(kernel_log.ring_buffer(Machine("/")))

    def _unseen(self, lines: List[str]) -> List[str]:
        """The lines after the last one seen. Several can have the same stamp."""
        last, count = self._seen
        stamps = [_seconds(line) for line in lines]
        newer = [line for line, stamp in zip(lines, stamps) if stamp > last]
        same = [line for line, stamp in zip(lines, stamps) if stamp == last][count:]
        if stamps:
            highest = max(max(stamps), last)
            self._seen = highest, stamps.count(highest)
        return same + newer

    def _follow(self, kmsg: str) -> None:
        """It ends at once where the journal cannot be read."""
        journal = subprocess.Popen(
            JOURNAL, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ, LC_ALL="C")
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = journal.wait(JOURNAL_STARTS_SECONDS)
            with journal:
                raise OSError(0, "journalctl ended with exit code %d" % code)
        assert journal.stdout
        os.set_blocking(journal.stdout.fileno(), False)
        self._journal = journal

    def _heard(self) -> List[str]:
        assert self._journal
        assert self._journal.stdout
        data = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._journal.stdout.fileno(), 1 << 16):
                data += part
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [kernel_log.JOURNAL_HOST.sub(r"\1 ", line.decode("utf-8", "replace")) for line in lines]


def line_of(record: str) -> str:
    """`4,1234,987654321,-;NVRM: Xid …`, and lines of properties, as dmesg shows it; "" for no record."""
    head, found, text = record.partition("\n")[0].partition(";")
    parts = head.split(",")
    if not found or len(parts) < 3 or not parts[2].isdigit():
        return ""
    return "[%12.6f] %s" % (int(parts[2]) / 1e6, text)


def _seconds(line: str) -> float:
    """With microseconds, unlike the stamp of a whole second."""
    start = line.find("[")
    end = line.find("]", start)
    try:
        return float(line[start + 1 : end])
    except ValueError:
        return 0.0
