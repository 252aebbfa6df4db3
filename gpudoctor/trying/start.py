"""A run of a command: what is started, what counts as working, and how it ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(\x07|\x1b\\)|[()][0-9A-B])")
TIMEOUT, REACHED, LONGER, STOPPED = "timeout", "reached", "longer", "stopped"
"""Why a run was stopped: it took too long, printed `until`, ran far longer than the run that failed, or the user stopped it."""


@dataclass(frozen=True)
class Start:
    """What to run. change: as in worker/changed.py; its variables and folders are already part of `environment`."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    change: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Goal:
    """What counts as working.

    timeout: seconds after which a run is ended as hanging. longer: seconds after which a repeat has run far longer than the run
    that failed. until: printed when the command got far enough; the run is stopped there. metric: its first group, or the whole
    match, is a number; the last one counts. faster_than: seconds. at_least: of the metric.
    """

    timeout: float | None = None
    longer: float | None = None
    until: re.Pattern[str] | None = None
    metric: re.Pattern[str] | None = None
    faster_than: float | None = None
    at_least: float | None = None

    def verdict(self, ran: Ran) -> str:
        """Why the run did not work or was too slow, "" if all is as wanted."""
        return self.failure(ran) or self._too_slow(ran)

    def failure(self, ran: Ran) -> str:
        """Why the run did not work, "" if it did."""
        if ran.stopped == TIMEOUT:
            return f"did not end within {self.timeout:g} s"
        if ran.stopped == STOPPED:
            return "was interrupted"
        if ran.stopped != REACHED and ran.manner and ran.stopped != LONGER:
            return f"{'was ' * (ran.code < 0)}{'ended with ' * (ran.code > 0)}{ran.manner}"
        if self.until and ran.stopped not in (REACHED, LONGER):
            return "ended without the output that --until expects"
        return "printed no number that --metric matches" if self.metric and ran.figure is None else ""

    def _too_slow(self, ran: Ran) -> str:
        if self.faster_than is not None and ran.seconds >= self.faster_than:
            return f"took {ran.seconds:.1f} s, not less than {self.faster_than:g} s"
        if self.at_least is None or ran.figure is None:
            return ""
        return f"reached {ran.figure:g}, less than {self.at_least:g}" if ran.figure < self.at_least else ""

    @property
    def is_speed(self) -> bool:
        return self.faster_than is not None or self.at_least is not None


@dataclass(frozen=True)
class Ran:
    """How a run ended. code: negative for a signal, as in subprocess. stopped: why gpudoctor ended it, "" if it did not.

    output: its first and last output, at most a few MiB; dropped: bytes between them. figure, unit: the last of the metric.
    left: names of the processes that it left running. waiting: what its processes did when the time was up.
    """

    code: int
    seconds: float
    stopped: str = ""
    output: bytes = b""
    dropped: int = 0
    figure: float | None = None
    unit: str = ""
    left: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    @property
    def manner(self) -> str:
        """How it ended: "exit code 3", "killed by SIGSEGV", "" for success."""
        if self.code < 0:
            return f"killed by {signal_name(-self.code)}"
        return f"exit code {self.code}" if self.code else ""

    @property
    def text(self) -> str:
        """Without escape sequences for colours and titles."""
        return ESCAPES.sub("", self.output.decode("utf-8", "replace")).replace("\r\n", "\n")

    @property
    def words(self) -> str:
        """What a shell would print about its end."""
        return (signal.strsignal(-self.code) or "") if self.code < 0 and not self.stopped else ""


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"
