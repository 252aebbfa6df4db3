"""The watching process as its starter sees it: it is started, asked to end, and what it kept is read even if it hangs or dies."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any

from gpudoctor.jobs.watching import sampler
from gpudoctor.jobs.watching.target import Target
from gpudoctor.model import Reply
from gpudoctor.worker.child import talking

READY_SECONDS, LAST_SECONDS = 15.0, 5.0
STUCK = "NVML or /proc does not answer"


class Watcher:
    """Starts at once. Its messages can be waited for with select, and need not be read unless `is_live`."""

    def __init__(self, target: Target, is_live: bool = False) -> None:
        self.target = target
        self._kept = os.memfd_create("gpudoctor-watch")
        starter, kept = os.getpid(), self._kept
        self._child, self._lines = talking(lambda channel: sampler.life(channel, target, starter, kept, is_live), {kept})
        self._is_done = False

    def fileno(self) -> int:
        return self._lines.fileno()

    @property
    def has_ended(self) -> bool:
        return self._is_done or self._lines.ended

    def wait_until_ready(self) -> None:
        """So that a command does not start before it is watched. A driver that does not answer delays it no longer than this."""
        end = time.monotonic() + READY_SECONDS
        while not self.has_ended and (left := end - time.monotonic()) > 0:
            if select.select([self._lines], [], [], left)[0] and any("ready" in message for message in self._lines.read()):
                return

    def read(self) -> list[dict[str, Any]]:
        """The live states since the last call. Blocks until one arrives."""
        messages = self._lines.read()
        self._is_done |= any("done" in message for message in messages)
        return [message["live"] for message in messages if "live" in message]

    def stopped(self) -> Reply:
        """Ends it. If it hangs, what it had kept until then is the answer."""
        self._child.signal(signal.SIGTERM)
        end = time.monotonic() + LAST_SECONDS
        while not self.has_ended and (left := end - time.monotonic()) > 0:
            if select.select([self._lines], [], [], left)[0]:
                self.read()
        manner = "" if self._is_done else STUCK if not self._lines.ended else self._child.killed() or "it ended"
        self._child.killed()
        self._lines.close()
        found = self._summary()
        os.close(self._kept)
        if found is None:
            return Reply("error", None, f"the process that watches: {manner or 'nothing was kept'}")
        if manner:
            found["ended"] = f"the process that watches: {manner}"
        return Reply("ok", found, "", found["seconds"])

    def _summary(self) -> dict[str, Any] | None:
        size = int.from_bytes(os.pread(self._kept, 8, 0), "big")
        with contextlib.suppress(ValueError):
            found = json.loads(_all(self._kept, size)) if size else None
            return found if isinstance(found, dict) else None
        return None


def _all(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.pread(descriptor, size - len(data), 8 + len(data))):
        data += more
    return data
