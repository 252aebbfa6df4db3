"""What the host did: which operator each call to CUDA belongs to, which calls waited, and on which line of the program."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.jobs.tracing.intervals import Intervals, union
from gpudoctor.jobs.tracing.rows import CALL, COPY, MARK, OPERATOR, Rows

WAITS = re.compile(r"cuda\w*Synchronize\w*|cu(Stream|Ctx|Event)Synchronize\w*")
BLOCKING_COPIES = re.compile(
    r"""
    cudaMemcpy(2D|3D)?(FromSymbol|ToSymbol)?(_ptds|_v\w+)? | cuMemcpy(DtoH|HtoD|DtoD)?(_v\d)?
    """,
    re.VERBOSE,
)
ALLOCATIONS = re.compile(
    r"""
    cuda(Malloc|Free|HostAlloc|MallocHost|FreeHost|HostRegister)\w*
    | cuMem(Create|Alloc|Free|Release|Map|Unmap)\w*
    """,
    re.VERBOSE,
)
FREES = re.compile(r"cudaFree|cuMem(Free|Release|Unmap)\w*")  # they wait until the GPU has nothing to do
LAUNCHES = re.compile(r"cu(da)?Launch\w*|cu(da)?GraphLaunch\w*")
GRAPHS = re.compile(r"cu(da)?GraphLaunch\w*")
LOADING = "enumerate(DataLoader)#"
COMPILING = re.compile(
    r"""
    dynamo_timed | compile_inner | _compile\. | compile_fx | Inductor | backend_compile
    | entire_frame_compile
    """,
    re.VERBOSE,
)
SAMPLED_LATE_US = 100.0
WAITED_US = 10.0  # a wait that is shorter found nothing to wait for


@dataclass
class Wait:
    """A call in which the host waited for the GPU. operator: the outermost one around it. copied: the last copy in that operator.
    place: of the sampled stack, if any."""

    start: float
    end: float
    call: str
    operator: str
    copied: str = ""
    place: int = -1


@dataclass
class Host:
    """inner, outer: of each host event, the innermost and the outermost operator around it, -1 for none."""

    inner: array[int]
    outer: array[int]
    waits: list[Wait]
    allocating: Intervals
    loading: Intervals
    compiling: Intervals
    working: Intervals
    freeing: Intervals
    launches: int = 0
    graphs: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    call_us: dict[str, float] = field(default_factory=dict)
    loads: int = 0


def seen(rows: Rows, until: float) -> Host:
    """until: what begins later is the profiler's own end."""
    inner, outer = _around(rows)
    copied = _copied(rows, outer)
    host = Host(inner, outer, [], [], [], [], [], [])
    kinds: dict[str, list[tuple[float, float]]] = {"allocating": [], "loading": [], "compiling": [], "working": [], "freeing": []}
    for number, kind in enumerate(rows.h_kind):
        span = rows.h_start[number], rows.h_end[number]
        if span[0] >= until:
            continue
        name = rows.name(rows.h_name[number])
        if kind == CALL:
            _count_call(host, rows, number, name, kinds, copied)
        elif name.startswith(LOADING):
            kinds["loading"].append(span)
            host.loads += name.endswith("__next__")
        elif COMPILING.search(name):
            kinds["compiling"].append(span)
        if kind != MARK:
            kinds["working"].append(span)
    host.allocating, host.loading, host.compiling, host.working, host.freeing = (union(found) for found in kinds.values())
    host.waits.sort(key=lambda wait: wait.start)
    return host


def _count_call(
    host: Host, rows: Rows, number: int, name: str, kinds: dict[str, list[tuple[float, float]]], copied: dict[int, str]
) -> None:
    span = rows.h_start[number], rows.h_end[number]
    host.calls[name] += 1
    host.call_us[name] = host.call_us.get(name, 0.0) + span[1] - span[0]
    host.launches += LAUNCHES.fullmatch(name) is not None
    host.graphs += GRAPHS.fullmatch(name) is not None
    outermost = host.outer[number]
    through_buffer = "Pageable" in copied.get(number, "") and "Memcpy" in name and span[1] - span[0] >= WAITED_US
    if WAITS.fullmatch(name) or BLOCKING_COPIES.fullmatch(name) or through_buffer:
        operator = rows.name(rows.h_name[outermost]) if outermost >= 0 else ""
        host.waits.append(Wait(*span, name, operator, copied.get(number, "")))
    elif ALLOCATIONS.fullmatch(name):
        kinds["allocating"].append(span)
        if FREES.fullmatch(name):
            kinds["freeing"].append(span)


def _copied(rows: Rows, outer: array[int]) -> dict[int, str]:
    """Call -> the name of the last copy in its operator; without an operator, of that call or of the copy just before it."""
    names = {rows.g_link[number]: rows.name(rows.g_name[number]) for number, kind in enumerate(rows.g_kind) if kind == COPY}
    calls = [number for number, kind in enumerate(rows.h_kind) if kind == CALL]
    within = {outer[number]: names[rows.h_link[number]] for number in calls if rows.h_link[number] in names}
    found, last = {}, (-1, "")
    for number in sorted(calls, key=lambda one: (rows.h_thread[one], rows.h_start[one])):
        own = names.get(rows.h_link[number], "")
        copy = own or (last[1] if last[0] == rows.h_thread[number] else "")
        if outer[number] >= 0:
            copy = within.get(outer[number], "")
        if copy:
            found[number] = copy
        last = rows.h_thread[number], own
    return found


def _around(rows: Rows) -> tuple[array[int], array[int]]:
    """The innermost and the outermost operator of the same thread around each call and each operator."""
    inner, outer = (array("l", [-1]) * len(rows.h_start) for _ in range(2))
    order = sorted(
        range(len(rows.h_start)), key=lambda number: (rows.h_thread[number], rows.h_start[number], -rows.h_end[number])
    )
    stack: list[int] = []
    thread = None
    for number in order:
        if rows.h_kind[number] == MARK:
            continue
        if rows.h_thread[number] != thread:
            thread, stack = rows.h_thread[number], []
        while stack and rows.h_end[stack[-1]] <= rows.h_start[number]:
            stack.pop()
        if stack:
            inner[number], outer[number] = stack[-1], stack[0]
        if rows.h_kind[number] == OPERATOR:
            stack.append(number)
    return inner, outer


class Samples:
    """The sampled stacks of the main thread. places: as the sampler wrote them."""

    def __init__(self, told: Mapping[str, Any], base_ns: int) -> None:
        samples, places = told.get("samples") or [], told.get("places") or []
        self.times = [(sample[0] - base_ns) / 1000 for sample in samples]
        self.which = [sample[1] for sample in samples]
        self.places = places

    def during(self, start: float, end: float) -> list[int]:
        """The places seen in a time."""
        return self.which[bisect_left(self.times, start) : bisect_left(self.times, end)]

    def line(self, place: int) -> dict[str, Any]:
        """{"file", "line", "function"} of the user, and where in a package that was, if it is another place."""
        (file, line, function), inner, leaf = self.places[place]
        found = {"file": file, "line": line, "function": function, "leaf": leaf}
        if list(inner) != [file, line, function]:
            found["through"] = f"{inner[0]}:{inner[1]}"
        return found


def located(waits: Sequence[Wait], samples: Samples) -> None:
    """Gives each wait the line that was sampled in it, or at least most often in waits of its kind.

    A wait lets go of the interpreter's lock, and the sampler takes it: it may look when the wait is just over.
    """
    seen: dict[tuple[str, str, str], Counter[int]] = {}
    for number, wait in enumerate(waits):
        until = waits[number + 1].start if number + 1 < len(waits) else float("inf")
        places = samples.during(wait.start, max(wait.end, min(until, wait.end + SAMPLED_LATE_US)))
        if places:
            wait.place = Counter(places).most_common(1)[0][0]
        if wait.place >= 0:
            seen.setdefault((wait.call, wait.operator, wait.copied), Counter())[wait.place] += 1
    for wait in waits:
        usual = seen.get((wait.call, wait.operator, wait.copied))
        if wait.place < 0 and usual:
            wait.place = usual.most_common(1)[0][0]


def lines(samples: Samples, waits: Sequence[Wait], most: int) -> list[dict[str, Any]]:
    """The program's lines on which the main thread was seen most, and how much of that was waiting for the GPU."""
    waiting = Counter[int]()
    for wait in waits:
        waiting.update(samples.during(wait.start, wait.end))
    total = len(samples.which) or 1
    return [
        {**samples.line(place), "share": round(number / total, 4), "waiting_share": round(waiting[place] / total, 4)}
        for place, number in Counter(samples.which).most_common(most)
    ]
