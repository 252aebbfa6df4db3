"""The clock by which workloads time their own work. Windows and time limits, which processes share, go by time.monotonic."""

from __future__ import annotations

import time
from typing import Callable

now: Callable[[], float] = time.perf_counter  # seconds; a GPU that a test pretends puts its own clock here
