"""A workload and its bench: its GPUs, and a way to store results one by one, so that none is lost."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import statistics
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

EACH, ALONE, ONCE, TOGETHER = "each", "alone", "once", "together"
POLL_SECONDS = 0.05
WAITS, GO = ".waits", ".go"  # suffixes of the file of a workload that starts early: it is prepared; it has its turn


class Workload(NamedTuple):
    """Something to measure. `run` raises model.Skip if it cannot be done here, any other exception if it failed.

    runtime: the framework that is imported before the fork ("driver" for none). scope: "each" (on each GPU, all GPUs in
    parallel), "alone" (on each GPU while nothing else runs), "once" (on the first GPU, for results that are the same on all), or
    "together" (on all GPUs in one process, if there are two or more).
    """

    run: Callable[[Bench], None]
    runtime: str = "driver"
    scope: str = EACH
    seconds: float = 60  # it is killed after this time
    typical_seconds: float = 1  # for the progress line
    starts_early: bool = False  # does long preparations without a GPU, then waits for `Bench.turn`


class Bench:
    """One run of a workload: what it can use, and where its results go.

    gpus: CUDA's numbers of its GPUs. cores: the CPU cores near the first GPU, if known. options: what the user chose for this
    workload; "seconds" is how long it has to run.
    """

    def __init__(
        self,
        file: str,
        gpus: Sequence[int],
        level: str = "standard",
        cores: Sequence[int] = (),
        folder: str = "",
        options: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.options = options or {}
        self.gpus = tuple(gpus)
        self.level = level
        self.cores = tuple(cores)
        self.folder = folder or os.path.dirname(file)
        self._file = file

    @property
    def gpu(self) -> int:
        """CUDA's number of the only or the first GPU."""
        return self.gpus[0]

    def step(self, what: str) -> None:
        """Names the next step, so that the report can say where a process died or hung."""
        self._write(step=what)

    def keep(self, name: str, **values: Any) -> None:
        """Stores a result permanently, whatever happens next."""
        self._write(name=name, value=values)

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[Dict[str, Any]]:
        """A result with the time of its measurement: what the sampler saw meanwhile is stored with it as "during"."""
        self.step(name)
        values: Dict[str, Any] = {}
        began = time.monotonic()
        yield values
        self._write(name=name, value=values, began=began, ended=time.monotonic())

    def turn(self) -> None:
        """For a workload that starts early: waits until it has the GPUs."""
        self.step("waiting for its turn")
        touch(self._file + WAITS)
        while not os.path.exists(self._file + GO):
            time.sleep(POLL_SECONDS)

    def near(self) -> Optional[bool]:
        """Moves this process to the CPU cores near its GPU; False if it is not allowed to use any of them, None if they are
        unknown."""
        allowed = os.sched_getaffinity(0) & set(self.cores)
        if allowed:
            os.sched_setaffinity(0, allowed)
        return bool(allowed) if self.cores else None

    def end(self, status: str, detail: str = "", kind: str = "") -> None:
        self._write(end=status, detail=detail, kind=kind)

    def _write(self, **line: Any) -> None:
        with open(self._file, "a", encoding="utf-8", errors="replace") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def touch(path: str) -> None:
    with open(path, "w"):
        pass


def workload(name: str) -> Workload:
    """The workload with this name in a check's `workloads`."""
    found: Workload = importlib.import_module("gpudoctor.worker.workloads." + name.replace("-", "_")).WORKLOAD
    return found


class Heard(NamedTuple):
    """What a workload has written so far."""

    values: Dict[str, Dict[str, Any]]
    windows: Dict[str, Tuple[float, float]]
    step: str
    end: Optional[Dict[str, str]]


def read(path: str) -> Heard:
    """Reads a file of `Bench`; an incomplete last line does not count."""
    values: Dict[str, Dict[str, Any]] = {}
    windows: Dict[str, Tuple[float, float]] = {}
    step, end = "", None
    for line in _lines(path):
        if "name" in line:
            values[line["name"]] = line["value"]
            if "began" in line:
                windows[line["name"]] = (line["began"], line["ended"])
        step = line.get("step", step)
        if "end" in line:
            end = line
    return Heard(values, windows, step, end)


def _lines(path: str) -> Iterator[Dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def finite(number: float) -> Optional[float]:
    """None for NaN and infinity, which JSON does not support."""
    return number if math.isfinite(number) else None


def summary(values: Sequence[float]) -> Dict[str, float]:
    """Median, and the spread: the range from the 10th to the 90th percentile as a fraction of the median."""
    ordered: List[float] = sorted(values)
    median = statistics.median(ordered)
    tenth = len(ordered) // 10
    spread = (ordered[-1 - tenth] - ordered[tenth]) / median if median else 0.0
    return {"median": median, "spread": spread}
