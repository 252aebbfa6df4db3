"""What the kernel log recorded while programs failed: processes that it killed, and those that crashed."""

from __future__ import annotations

import contextlib
import re

from gpudoctor.worker.probes import kernel_log
from gpudoctor.worker.probes.machine import Machine

KILLED = re.compile(
    r"segfault\ at | general\ protection | traps:\ | trap\ invalid\ opcode | Killed\ process | oom-kill | [Oo]ut\ of\ memory",
    re.VERBOSE,
)
BEFORE_SECONDS = 2.0  # the log's clock and the monotonic one differ by up to this
MOST_LINES = 20


def since(began: float) -> str:
    """The last lines about killed or crashed processes since `began` on the monotonic clock; "" if the log cannot be read."""
    with contextlib.suppress(OSError):
        recent = (line for line in kernel_log.ring_buffer(Machine("/")) if _seconds(line) >= began - BEFORE_SECONDS)
        return "\n".join([line for line in recent if KILLED.search(line)][-MOST_LINES:])
    return ""


def _seconds(line: str) -> float:
    stamp = kernel_log.FIRST_SECONDS.match(line)
    return float(stamp.group(1)) if stamp else 0.0
