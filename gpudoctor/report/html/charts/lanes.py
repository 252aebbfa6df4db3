"""What ran when, on which GPUs: a lane of blocks for all that kept the same time, below a chart of those seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpudoctor.report.html.charts.drawing import WIDTH, mark

MOST = 8  # with more, GPUs whose times differ more share a lane, if the same ran on them
KINDS = ("lane ran even", "lane ran odd")  # of the two series of a lane
_SAME = 1 / 40  # of all the time: too little to be seen in a chart
_LETTER = 8  # pixels, at most; on a phone, where they are larger, blocks carry no name
_RANGES = 2  # with more the label of a lane only counts its GPUs

Span = tuple[float, float]
Workloads = dict[str, Span]


@dataclass(frozen=True)
class Lane:
    """GPU -> workload -> when it ran there. is_only: all GPUs that were measured are in this lane."""

    ran: dict[int, Workloads]
    is_only: bool = False

    @property
    def workloads(self) -> list[str]:
        return list(next(iter(self.ran.values())))

    @property
    def gpus(self) -> str:
        return "GPU " + ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in _ranges(self.ran))

    @property
    def label(self) -> str:
        """Short enough for the side of a chart."""
        if self.is_only:
            return ""
        return self.gpus.replace(" to ", "–") if len(_ranges(self.ran)) <= _RANGES else f"{len(self.ran)} GPUs"

    def span(self, workload: str) -> Span:
        """From its start on the first GPU to its end on the last."""
        spans = [ran[workload] for ran in self.ran.values()]
        return min(began for began, _ in spans), max(ended for _, ended in spans)

    def says(self, workload: str) -> str:
        began, ended = self.span(workload)
        return f"{workload}{'' if self.is_only else f', {self.gpus}'}, {began:.1f} to {ended:.1f} s"


def shared(ran: Mapping[int, Workloads], seconds: float) -> list[Lane]:
    """The lanes of all GPUs on which something ran. seconds: how long all of it took."""
    known = {gpu: workloads for gpu, workloads in ran.items() if workloads}
    apart = _SAME * seconds
    found = _grouped(known, apart)
    while len(found) > MOST and apart < seconds:
        apart *= 2
        found = _grouped(known, apart)
    return [Lane(group, is_only=len(group) == len(ran)) for group in found]


def _grouped(ran: Mapping[int, Workloads], apart: float) -> list[dict[int, Workloads]]:
    """Each GPU goes with the first that it agrees with."""
    groups: list[dict[int, Workloads]] = []
    for gpu, workloads in ran.items():
        group = next((group for group in groups if _agree(next(iter(group.values())), workloads, apart)), None)
        if group is None:
            groups.append({gpu: workloads})
        else:
            group[gpu] = workloads
    return groups


def _agree(one: Workloads, other: Workloads, apart: float) -> bool:
    return one.keys() == other.keys() and all(
        abs(at - there) <= apart for name in one for at, there in zip(one[name], other[name], strict=True)
    )


def _ranges(gpus: Iterable[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for gpu in sorted(gpus):
        if ranges and gpu == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], gpu
        else:
            ranges.append((gpu, gpu))
    return ranges


def add(chart: Any, lane: Lane, place: float, seconds: float) -> None:
    """Draws a lane at a height, in two shades, so that each block is seen; a block that has room carries its name."""
    for part in (0, 1):
        blocks = [_block(lane, workload, place, seconds) for workload in lane.workloads[part::2]]
        chart.add("", [point for block in blocks for point in block], allow_interruptions=True, show_dots=True, dots_size=5)


def _block(lane: Lane, workload: str, place: float, seconds: float) -> Iterator[Any]:
    began, ended = lane.span(workload)
    fits = (ended - began) / seconds * WIDTH > len(workload) * _LETTER
    yield began, place
    yield mark(((began + ended) / 2, place), lane.says(workload), "block", label=workload if fits else "")
    yield ended, place
    yield ended, None
