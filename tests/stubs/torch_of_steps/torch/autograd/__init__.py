# mypy: ignore-errors
import os
import time

from torch.autograd import profiler

Trace = profiler.Trace


def _profiler_enabled():
    return profiler.running is not None


def _disable_profiler():
    assert profiler.running is not None, "no profiler runs"
    began, profiler.running = profiler.running, None
    os.write(2, b"USDT:2026-11-23 07:43:11 1:1 SyncActivityProfilerHandler.cpp:59] profiler_stop\n")
    return Trace(began, time.time_ns())


def _enable_profiler(config, activities, scopes=()):
    profiler.scopes.append(scopes)
    profiler.start(activities)


__all__ = ["_disable_profiler", "_enable_profiler", "_profiler_enabled", "profiler"]
