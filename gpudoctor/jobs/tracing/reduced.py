"""From the events of one process to the tables of its profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.jobs.tracing import host as hosts
from gpudoctor.jobs.tracing import intervals as spans
from gpudoctor.jobs.tracing import operators, stepping
from gpudoctor.jobs.tracing.host import Host, Samples
from gpudoctor.jobs.tracing.intervals import Intervals
from gpudoctor.jobs.tracing.rows import COPY, KERNEL, Rows
from gpudoctor.judging.jobs import kernel_names

MOST_ROWS, MOST_NAME = 40, 200
MOST_LINES = 12
SMALL_COPY_BYTES = 64 << 10
SHORT_KERNEL_US = 10.0


def profile(rows: Rows, about: Mapping[str, Any]) -> dict[str, Any]:
    """about: what the tracer wrote with the trace."""
    until = _relative(about.get("ended_ns"), rows, float("inf"))
    host = hosts.seen(rows, until)
    samples = Samples(about, rows.base_ns)
    hosts.located(host.waits, samples)
    window = _window(rows, about, until)
    ends = stepping.ends(rows, about)
    return {
        "events": len(rows.g_start) + len(rows.h_start),
        "is_cut": rows.is_cut,
        **_times(rows, host, window),
        "steps": stepping.steps(about) | stepping.late(rows, about, ends, idle_of(rows, host, window)),
        "waits": _waits(rows, host, samples, window, ends),
        "copies": _copies(rows, ends),
        "calls": _calls(host),
        "kernels": _kernels(rows),
        "kinds": _kinds(rows),
        "operators": operators.table(rows, host, MOST_ROWS),
        "shapes": operators.changing_shapes(rows),
        "lines": hosts.lines(samples, host.waits, MOST_LINES),
        "loads": host.loads,
        "collectives": rows.collectives,
    }


def _relative(moment_ns: Any, rows: Rows, otherwise: float) -> float:
    return (moment_ns - rows.base_ns) / 1000 if isinstance(moment_ns, int) and moment_ns else otherwise


def _window(rows: Rows, about: Mapping[str, Any], until: float) -> tuple[float, float]:
    """From the first to the last work of the GPU; without any, the time that was recorded."""
    if len(rows.g_start):
        return min(rows.g_start), max(rows.g_end)
    start = _relative(about.get("began_ns"), rows, min(rows.h_start, default=0.0))
    return start, min(until, max(rows.h_end, default=start))


def _spans(rows: Rows, kinds: Sequence[int], names: set[int] | None = None) -> Intervals:
    return spans.union(
        (rows.g_start[number], rows.g_end[number])
        for number, kind in enumerate(rows.g_kind)
        if kind in kinds and (names is None or rows.g_name[number] in names)
    )


def _times(rows: Rows, host: Host, window: tuple[float, float]) -> dict[str, Any]:
    """Seconds, as shares of the same window."""
    of_kind = rows.kinds()
    talking = {name for name, kind in of_kind.items() if kind == "communication"}
    kernels, copies = _spans(rows, (KERNEL,)), _spans(rows, (COPY,))
    busy = _spans(rows, (0, 1, 2))
    communication = _spans(rows, (KERNEL,), talking)
    computing = _spans(rows, (KERNEL,), set(of_kind) - talking)
    gaps = spans.minus([window], busy)
    sums = {
        "window_s": window[1] - window[0],
        "busy_s": spans.length(busy),
        "kernel_s": sum(
            end - start for start, end, kind in zip(rows.g_start, rows.g_end, rows.g_kind, strict=True) if kind == KERNEL
        ),
        "computing_s": spans.length(computing),
        "copying_s": spans.length(copies),
        "exposed_copying_s": spans.length(spans.minus(copies, kernels)),
        "communicating_s": spans.length(communication),
        "exposed_communicating_s": spans.length(spans.minus(communication, computing)),
    }
    found: dict[str, Any] = {name: round(value / 1e6, 9) for name, value in sums.items()}
    found["kernel_count"] = sum(kind == KERNEL for kind in rows.g_kind)
    found["launches"], found["graph_launches"] = host.launches, host.graphs
    found["short_kernels"] = _short(rows)
    found["gaps_s"] = {name: round(value / 1e6, 9) for name, value in _gaps(gaps, host).items()}
    found["streams"] = len(set(rows.g_stream))
    return found


def idle_of(rows: Rows, host: Host, window: tuple[float, float]) -> Intervals:
    """Without a kernel, without what the host does under a name."""
    named = spans.union([*host.allocating, *host.loading, *host.compiling])
    return spans.minus(spans.minus([window], _spans(rows, (KERNEL,))), named)


def _short(rows: Rows) -> int:
    lasts = zip(rows.g_start, rows.g_end, rows.g_kind, strict=True)
    return sum(end - start < SHORT_KERNEL_US for start, end, kind in lasts if kind == KERNEL)


def _gaps(gaps: Intervals, host: Host) -> dict[str, float]:
    """Microseconds in which the GPU had nothing to do, by what the host did meanwhile; the first that applies counts."""
    left = gaps
    found: dict[str, float] = {}
    after = after_waits(gaps, host.waits)
    for name, doing in (
        ("allocating", spans.union([*host.allocating, *_with(gaps, host.freeing)])),
        ("loading", host.loading),
        ("compiling", host.compiling),
        ("after_waits", spans.union(after)),
        ("launching", host.working),
    ):
        found[name] = spans.length(spans.common(left, doing))
        left = spans.minus(left, doing)
    found["python"] = spans.length(left)
    return found


def with_compilations(gaps: Mapping[str, float], seconds: float) -> dict[str, float]:
    """torch counts the seconds of its compilations, also where it marked none: the host seems to launch or to run Python then."""
    other = gaps["launching"] + gaps["python"]
    more = min(max(0.0, seconds - gaps["compiling"]), other)
    kept = {name: round(gaps[name] * (1 - more / other), 9) for name in ("launching", "python")} if other else {}
    return {**gaps, **kept, "compiling": round(gaps["compiling"] + more, 9)}


def _with(gaps: Intervals, calls: Intervals) -> Intervals:
    """The gaps in which one of some calls was made: they last until the next work is launched."""
    found, place = [], 0
    for gap in gaps:
        while place < len(calls) and calls[place][1] <= gap[0]:
            place += 1
        if place < len(calls) and calls[place][0] < gap[1]:
            found.append(gap)
    return found


def after_waits(gaps: Intervals, all_waits: Sequence[hosts.Wait]) -> Intervals:
    """The gaps that begin while the host waits for the GPU, as far as the wait delayed the next launch: by as long as it was."""
    found, place = [], 0
    waits = [wait for wait in all_waits if wait.end - wait.start >= hosts.WAITED_US]
    for gap in gaps:
        while place < len(waits) and waits[place].end < gap[0] - hosts.WAITED_US:
            place += 1
        if place < len(waits) and waits[place].start <= gap[0] and waits[place].end <= gap[1]:
            found.append((gap[0], min(gap[1], gap[0] + waits[place].end - waits[place].start)))
    return found


def _waits(rows: Rows, host: Host, samples: Samples, window: tuple[float, float], ends: Sequence[float]) -> list[dict[str, Any]]:
    """By call, operator and line: how often, how long the host waited, and how long the GPU had nothing to do after it."""
    gaps = spans.minus([window], _spans(rows, (0, 1, 2)))
    groups: dict[tuple[str, str, str, int], list[hosts.Wait]] = {}
    for wait in host.waits:
        groups.setdefault((wait.call, wait.operator, wait.copied, wait.place), []).append(wait)
    others = spans.union([*host.allocating, *host.loading, *host.compiling])
    found = []
    for (call, operator, copied, place), group in groups.items():
        idle = after_waits(gaps, group)
        row: dict[str, Any] = {
            "call": call,
            "operator": operator,
            "copied": copied,
            "count": len(group),
            **stepping.spread((wait.start for wait in group), ends),
            "waited_s": round(sum(wait.end - wait.start for wait in group) / 1e6, 9),
            "idle_s": round(spans.length(spans.minus(idle, others)) / 1e6, 9),
        }
        if place >= 0:
            row["line"] = samples.line(place)
        found.append(row)
    return sorted(found, key=lambda row: (-row["idle_s"], -row["waited_s"]))[:MOST_ROWS]


def _copies(rows: Rows, ends: Sequence[float]) -> list[dict[str, Any]]:
    """By direction and kind of host memory."""
    kernels = _spans(rows, (KERNEL,))
    groups: dict[str, list[int]] = {}
    for number, kind in enumerate(rows.g_kind):
        if kind == COPY:
            groups.setdefault(rows.name(rows.g_name[number]), []).append(number)
    found = []
    for name, numbers in groups.items():
        taken = spans.union((rows.g_start[number], rows.g_end[number]) for number in numbers)
        found.append(
            {
                "name": name[:MOST_NAME],
                "count": len(numbers),
                **stepping.spread((rows.g_start[number] for number in numbers), ends),
                "bytes": sum(rows.g_bytes[number] for number in numbers),
                "small": sum(rows.g_bytes[number] < SMALL_COPY_BYTES for number in numbers),
                "seconds": round(spans.length(taken) / 1e6, 9),
                "exposed_s": round(spans.length(spans.minus(taken, kernels)) / 1e6, 9),
            }
        )
    return sorted(found, key=lambda row: -float(str(row["seconds"])))[:MOST_ROWS]


def _calls(host: Host) -> dict[str, Any]:
    """CUDA's calls that cost the most time of the host."""
    most = sorted(host.call_us.items(), key=lambda item: -item[1])[:MOST_LINES]
    allocating = {name: host.calls[name] for name in host.calls if hosts.ALLOCATIONS.fullmatch(name)}
    return {
        "by_time": [{"name": name, "count": host.calls[name], "seconds": round(us / 1e6, 9)} for name, us in most],
        "allocations": allocating,
        "allocating_s": round(spans.length(host.allocating) / 1e6, 9),
        "loading_s": round(spans.length(host.loading) / 1e6, 9),
        "compiling_s": round(spans.length(host.compiling) / 1e6, 9),
    }


def _kernels(rows: Rows) -> list[dict[str, Any]]:
    seconds: Counter[int] = Counter()
    calls: Counter[int] = Counter()
    for number, kind in enumerate(rows.g_kind):
        if kind == KERNEL:
            seconds[rows.g_name[number]] += rows.g_end[number] - rows.g_start[number]  # type: ignore[assignment]
            calls[rows.g_name[number]] += 1
    found = []
    for name, us in seconds.most_common(MOST_ROWS):
        about, launch = kernel_names.about(rows.name(name)), rows.launches.get(name, {})
        found.append(
            {
                "name": rows.name(name)[:MOST_NAME],
                "kind": about.kind,
                "tensor": about.tensor,
                "precision": about.precision,
                "seconds": round(us / 1e6, 9),
                "calls": calls[name],
                "longest_us": round(rows.longest.get(name, 0.0), 3),
                "grid": launch.get("grid"),
                "block": launch.get("block"),
                "registers": launch.get("registers per thread"),
                "shared_bytes": launch.get("shared memory"),
                "occupancy": launch.get("est. achieved occupancy %"),
            }
        )
    return found


def _kinds(rows: Rows) -> list[dict[str, Any]]:
    """Seconds of all kernels by kind, precision and use of the tensor cores."""
    found: dict[tuple[str, str, Any], list[float]] = {}
    about = {name: kernel_names.about(rows.name(name)) for name in rows.longest}
    for number, kind in enumerate(rows.g_kind):
        if kind == KERNEL:
            one = about[rows.g_name[number]]
            sums = found.setdefault((one.kind, one.precision, one.tensor), [0.0, 0])
            sums[0] += rows.g_end[number] - rows.g_start[number]
            sums[1] += 1
    rows_of = [
        {"kind": kind, "precision": precision, "tensor": tensor, "seconds": round(us / 1e6, 9), "calls": int(calls)}
        for (kind, precision, tensor), (us, calls) in found.items()
    ]
    return sorted(rows_of, key=lambda row: -float(str(row["seconds"])))
