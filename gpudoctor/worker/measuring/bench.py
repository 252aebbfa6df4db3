"""What a workload is, and what it gets: its GPUs, and a way to hand over results one by one, so that none is lost."""

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
WAITS, GO = ".waits", ".go"  # beside the file of one that starts early: it is prepared, it is its turn


class Workload(NamedTuple):
    """Something to measure. `run` raises model.Skip where it cannot be done here, any other exception if it went wrong.

    runtime: the framework that is imported before the fork ("driver" for none). scope: "each" GPU at the same time as the
    others, each "alone" while nothing else runs, "once" on the first GPU, for what is the same on all, or all "together" in one
    process, where there are two or more.
    """

    run: Callable[[Bench], None]
    runtime: str = "driver"
    scope: str = EACH
    seconds: float = 60  # it is killed after these
    typical_seconds: float = 1  # for the progress line
    starts_early: bool = False  # prepares something long without a GPU, then waits for `Bench.turn`


class Bench:
    """One run of a workload: what it may use, and where its results go.

    gpus: CUDA's numbers of the GPUs to use. cores: the processor's near the first of them, as far as known.
    """

    def __init__(
        self, file: str, gpus: Sequence[int], level: str = "standard", cores: Sequence[int] = (), folder: str = ""
    ) -> None:
        self.gpus = tuple(gpus)
        self.level = level
        self.cores = tuple(cores)
        self.folder = folder or os.path.dirname(file)
        self._file = file

    @property
    def gpu(self) -> int:
        """CUDA's number of the only GPU, or of the first."""
        return self.gpus[0]

    def step(self, what: str) -> None:
        """Says what comes next, so that whoever finds this process dead or stuck knows where."""
        self._write(step=what)

    def keep(self, name: str, **values: Any) -> None:
        """Hands over a result that is there for good, whatever happens next."""
        self._write(name=name, value=values)

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[Dict[str, Any]]:
        """A result with the time in which it was measured: what the sampler saw meanwhile is kept with it as "during"."""
        self.step(name)
        values: Dict[str, Any] = {}
        began = time.monotonic()
        yield values
        self._write(name=name, value=values, began=began, ended=time.monotonic())

    def turn(self) -> None:
        """Waits until the GPUs are this workload's: for one that starts early."""
        self.step("waiting for its turn")
        touch(self._file + WAITS)
        while not os.path.exists(self._file + GO):
            time.sleep(POLL_SECONDS)

    def near(self) -> Optional[bool]:
        """Moves this process to the processor cores near its GPU; False if it may use none of them, None if they are unknown."""
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
    """By its name in a check's `workloads`."""
    found: Workload = importlib.import_module("gpudoctor.worker.workloads." + name.replace("-", "_")).WORKLOAD
    return found


class Heard(NamedTuple):
    """What a workload has written until now."""

    values: Dict[str, Dict[str, Any]]
    windows: Dict[str, Tuple[float, float]]
    step: str
    end: Optional[Dict[str, str]]


def read(path: str) -> Heard:
    """Reads a file of `Bench`; a last line that was cut off does not count."""
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
    """None for what is no number, which JSON does not know."""
    return number if math.isfinite(number) else None


def summary(values: Sequence[float]) -> Dict[str, float]:
    """Median, and the spread between the tenth and the ninetieth percentile as a share of it."""
    ordered: List[float] = sorted(values)
    median = statistics.median(ordered)
    tenth = len(ordered) // 10
    spread = (ordered[-1 - tenth] - ordered[tenth]) / median if median else 0.0
    return {"median": median, "spread": spread}
