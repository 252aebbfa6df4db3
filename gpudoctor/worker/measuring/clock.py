"""The clock with which workloads time their work. Windows and time limits, shared between processes, use time.monotonic."""

from __future__ import annotations

import time
from typing import Callable

now: Callable[[], float] = time.perf_counter  # seconds; tests with a stub GPU put its clock here
