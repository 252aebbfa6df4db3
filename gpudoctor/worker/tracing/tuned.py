"""Hears what autotuners measure, and keeps ncu away from it: under its counters, each launch takes thousands of times as long."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
from typing import Any, Callable, Dict, Iterator

depth = [0]  # measurements within each other


def attach(module: Any, settings: Dict[str, Any]) -> None:
    """module: of hook.AUTOTUNERS. Never raises; the measurements and the choice stay the autotuner's own."""
    inductor: Any = getattr(module, "CachingAutotuner", None)
    triton: Any = getattr(module, "Autotuner", None)

    def heard(self: Any, timings: Any) -> None:
        note(settings["folder"], str(self.fn.__name__), timings)

    if hasattr(inductor, "benchmark_all_configs"):
        inductor.benchmark_all_configs = _around(inductor.benchmark_all_configs, heard)
    if hasattr(triton, "_bench"):
        triton._bench = _around(triton._bench, lambda self, timings: None)


def _around(plain: Any, then: Callable[[Any, Any], None]) -> Any:
    @functools.wraps(plain)
    def measure(self: Any, *args: Any, **words: Any) -> Any:
        with unprofiled():
            found = plain(self, *args, **words)
        with contextlib.suppress(Exception):
            then(self, found)
        return found

    return measure


@contextlib.contextmanager
def unprofiled() -> Iterator[None]:
    depth[0] += 1
    if depth[0] == 1:
        _call("cuProfilerStop")
    try:
        yield
    finally:
        depth[0] -= 1
        if depth[0] == 0:
            _call("cuProfilerStart")


def _call(name: str) -> None:
    """Of the driver's library, which the program has loaded."""
    with contextlib.suppress(OSError, AttributeError):
        getattr(ctypes.CDLL("libcuda.so.1"), name)()


def note(folder: str, kernel: str, timings: Dict[Any, Any]) -> None:
    """timings: launcher -> milliseconds."""
    configs = [[_config(launcher.config), ms if ms < 1e9 else 1e9] for launcher, ms in timings.items()]
    with open(os.path.join(folder, "tuned-%d.jsonl" % os.getpid()), "a") as file:
        file.write(json.dumps({"kernel": kernel, "configs": configs}) + "\n")


def _config(config: Any) -> Dict[str, Any]:
    kept = {name: value for name, value in config.kwargs.items() if isinstance(value, (bool, int, float, str))}
    return {"kwargs": kept, "num_warps": config.num_warps, "num_stages": config.num_stages}
