"""A program on a terminal of its own, as a person at a keyboard has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from forked import Forked
from waiting import HOPELESS_SECONDS


class Terminal:
    """rows, columns: its size at first. fresh: see forked.py. `seen` is all that was shown."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        rows: int = 33,
        columns: int = 101,
        fresh: bool = False,
    ) -> None:
        self.master, slave = pty.openpty()
        self.seen = ""
        self._until = 0
        self.resize(rows, columns)
        self.modes = termios.tcgetattr(slave)
        self.process = Forked(
            ["setsid", "--ctty", *argv], stdin=slave, stdout=slave, stderr=slave, env=env, cwd=folder, fresh=fresh
        )
        self.slave = slave

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Waits until something new fits."""
        end = time.monotonic() + HOPELESS_SECONDS
        while not (found := re.search(pattern, self.seen[self._until :])):
            assert time.monotonic() < end, f"{pattern!r} never came: {self.seen!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 4096).decode(errors="replace")
        self._until += found.end()
        return found

    def wait(self) -> int:
        """The exit code; what is shown until then is read on."""
        end = time.monotonic() + HOPELESS_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end: {self.seen!r}"
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 4096).decode(errors="replace")
        return self.process.returncode

    def hang_up(self) -> None:
        """The window is closed."""
        os.close(self.slave)
        os.close(self.master)
        self.master = self.slave = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        if self.master >= 0:
            self.hang_up()
