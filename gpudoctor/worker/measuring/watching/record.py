"""What was watched during a long load, as the schedule keeps it: only what moved, with its times."""

from __future__ import annotations

import re
import statistics
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from gpudoctor.worker.measuring.watching import numbers
from gpudoctor.worker.reply import Reply

MOST_POINTS = 120  # of one counter
_XID = re.compile(
    r"""
    NVRM:\ Xid\ \((?:PCI:)?
    (?:([0-9a-fA-F]{4,8}):)? ([0-9a-fA-F]{2}):([0-9a-fA-F]{2}) (?:\.\d)?
    \):\ (\d+)
    """,
    re.VERBOSE,
)
OF_SAMPLES = ("pcie_generation", "pcie_width")


class Xid(NamedTuple):
    """text: of the kernel log; "" from NVML."""

    gpu: int
    code: int
    text: str = ""


class Series:
    """The moments at which a value changed."""

    def __init__(self) -> None:
        self.points: List[Tuple[float, float]] = []

    def keep(self, at: float, value: float) -> None:
        if self.points and self.points[-1][1] == value:
            return
        self.points.append((at, value))
        if len(self.points) > MOST_POINTS:  # the first change and the last ones stay
            del self.points[2 : MOST_POINTS // 2 : 2]

    @property
    def rose(self) -> float:
        return self.points[-1][1] - self.points[0][1] if self.points else 0.0


class Record:
    """began: in seconds of time.monotonic; all that it gives is in seconds since then."""

    def __init__(self, gpus: Sequence[int], began: float) -> None:
        self.xids: List[Xid] = []  # from either source, maybe both
        self._began = began
        self._gpus = gpus
        self._series: Dict[int, Dict[str, Series]] = {gpu: {} for gpu in gpus}
        self._highest: Dict[int, Dict[str, float]] = {gpu: {} for gpu in gpus}
        self._told: Dict[int, Dict[str, Any]] = {}
        self._log: Dict[str, Any] = {}
        self._slots: Dict[str, int] = {}
        self._lines: List[Tuple[float, str]] = []
        self._events: List[List[float]] = []
        self._rounds: List[Tuple[float, float]] = []

    def hear(self, line: Dict[str, Any]) -> None:
        """A message of the observer."""
        if "counts" in line:
            for name, value in line["counts"].items():
                self.keep(line["gpu"], name, line["at"], value)
        elif "xid" in line:
            self._events.append([self._since(line["at"]), line["gpu"], line["xid"]])
            self.xids.append(Xid(line["gpu"], line["xid"]))
        elif "lines" in line:
            for text in line["lines"]:
                self._lines.append((self._since(line["at"]), text))
                self._find_xid(text)
        elif "round_seconds" in line:
            self._rounds.append((line["at"], line["round_seconds"]))
        elif "watching" in line:
            self._log, self._slots = dict(line["watching"], events=line["events"]), line["slots"]
        elif "not_watched" in line:
            self._told[line["gpu"]] = line

    def keep(self, gpu: int, name: str, at: float, value: float) -> None:
        if name.partition(":")[0] in numbers.GAUGES:
            self._highest[gpu][name] = max(value, self._highest[gpu].get(name, value))
        else:
            self._series[gpu].setdefault(name, Series()).keep(self._since(at), value)

    def keep_sample(self, gpu: int, at: float, sample: Dict[str, Any]) -> None:
        for name in OF_SAMPLES:
            if sample.get(name):
                self.keep(gpu, name, at, sample[name])
        if "memory_celsius" in sample:
            self.keep(gpu, "memory_celsius", at, sample["memory_celsius"])

    def rose(self, gpu: int, name: str) -> float:
        series = self._series[gpu].get(name)
        return series.rose if series else 0.0

    def errors(self, gpu: int) -> int:
        """How many errors were counted since the load began, and Xids reported; of ECC the totals."""
        counts = (one.rose for name, one in self._series[gpu].items() if name.partition(":")[0] in numbers.ERRORS)
        codes = {xid.code for xid in self.xids if xid.gpu == gpu}
        return int(sum(rose for rose in counts if rose > 0)) + len(codes)

    def replies(self) -> Iterator[Tuple[str, Reply]]:
        """`watch:all` and `watch:gpuN`; none if nothing was watched."""
        if not self._log:
            return
        lines = {"lines": [text for _, text in self._lines], "line_seconds": [at for at, _ in self._lines]}
        yield "watch:all", Reply("ok", dict(self._log, xids=self._events, **lines, **self._cost()))
        for gpu, told in sorted(self._told.items()):
            yield "watch:gpu%d" % gpu, Reply("ok", self._of(gpu, told))

    def _of(self, gpu: int, told: Dict[str, Any]) -> Dict[str, Any]:
        names = dict.fromkeys(name.partition(":")[0] for name in told["names"])
        moved = {
            name: [[at, value] for at, value in one.points] for name, one in self._series[gpu].items() if len(one.points) > 1
        }
        links = {int(name.partition(":")[2]) for name in told["names"] if ":" in name}
        return {
            "calls": told["calls"],
            "watched": list(names),
            "links": sorted(links),
            "not_watched": told["not_watched"],
            "moved": moved,
            "highest": self._highest[gpu],
        }

    def _cost(self) -> Dict[str, Any]:
        """milliseconds: of one reading of all GPUs, the median and the longest."""
        if not self._rounds:
            return {}
        began = [at for at, _ in self._rounds]
        spent = [seconds for _, seconds in self._rounds]
        every = [later - earlier for earlier, later in zip(began, began[1:])] or [0.0]
        return {
            "readings": len(spent),
            "every_seconds": round(statistics.median(every), 2),
            "milliseconds": round(1000 * statistics.median(spent), 2),
            "longest_milliseconds": round(1000 * max(spent), 2),
        }

    def _find_xid(self, text: str) -> None:
        match = _XID.search(text)
        if match:
            slot = "%04x:%s:%s" % (int(match[1] or "0", 16), match[2].lower(), match[3].lower())
            if slot in self._slots:
                self.xids.append(Xid(self._slots[slot], int(match[4]), text))

    def _since(self, at: float) -> float:
        return round(at - self._began, 2)
