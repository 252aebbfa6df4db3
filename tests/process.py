"""Processes: one that ends with its block, those that are there, and what work costs this one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from forked import Forked


class Process(Forked):
    """Ends with its block, also where a test fails in it: Popen alone would wait for it for ever."""

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        if kind:
            self.kill()
        super().__exit__(kind, value, traceback)


def command_lines(of: str = "") -> dict[int, str]:
    """Of every other process; of: only those that have this in their command line or their environment."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is somebody else's
            line = _text(folder / "cmdline")
            if of in line or of in _text(folder / "environ"):
                found[int(folder.name)] = line
    found.pop(os.getpid(), None)
    return found


def _text(file: Path) -> str:
    return file.read_bytes().replace(b"\0", b" ").decode(errors="replace")


def processor_seconds(work: Callable[[], object]) -> float:
    """What it costs this process, whatever else the machine has to do."""
    began = time.process_time()
    work()
    return time.process_time() - began
