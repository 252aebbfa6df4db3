"""What `gpudoctor profile` recorded, for people: tables of the time, the waits, copies, kernels, operators and the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.facts.guarded import WRONG
from gpudoctor.facts.job.traced import Rank
from gpudoctor.judging.jobs.kernel_names import short
from gpudoctor.model import Report, Skip
from gpudoctor.plain import plain
from gpudoctor.report import acceptance, loaded, profiled_kernel, profiled_memory, without_gpu
from gpudoctor.report.section import Row as Row
from gpudoctor.report.section import Section as Section

SOME, ALL = 8, 40
WIDEST_NAME, NARROWEST_NAME = 60, 24
NARROW_COLUMNS = 6
MIB = 1 << 20
GAPS = {
    "allocating": "idle: memory is allocated",
    "loading": "idle: waiting for the DataLoader",
    "compiling": "idle: torch.compile compiles",
    "after_waits": "idle: after a wait for the GPU",
    "launching": "idle: waiting for launches",
    "python": "idle: the host runs Python",
}
TENSOR = {True: "yes", False: "no", None: "-"}


def of(report: Report) -> Mapping[str, Any] | None:
    """None if no program was profiled."""
    found = report.facts.get("profiled")
    return found if isinstance(found, Mapping) else None


def sections(report: Report, most: int = SOME, width: int = 120) -> tuple[Section, ...]:
    """most: rows of each table. width: of the page. Nothing if the profile has a form that no version of gpudoctor writes."""
    found = of(report)
    try:
        first = (
            *acceptance.sections(report),
            *(_sections(found, most, width, not without_gpu.is_missing(report)) if found else ()),
        )
        return (*first, *(loaded.sections(report) if most == ALL else ()))
    except (Skip, *WRONG):
        return ()


def _sections(found: Mapping[str, Any], most: int, width: int, has_gpu: bool) -> Iterator[Section]:
    ranks = [Rank(value) for value in found.get("ranks") or ()]
    working = [rank for rank in ranks if rank.kernel_count]
    room = max(NARROWEST_NAME, min(WIDEST_NAME, width - 50))
    yield Section(f"Profile of {plain(str(found.get('line')))}", (), (), tuple(_about(found, working, has_gpu)))
    if found.get("kernel"):
        yield from profiled_kernel.sections(found["kernel"], most, room)
    if ranks and not working:
        section = _operators(ranks[0], most, NARROWEST_NAME)
        yield Section(f"{_title(ranks[0])}: operators on the processor", section.head, section.rows)
    if len(working) > 1:
        yield _ranks(working)
    for rank in working:
        if rank is min(working, key=lambda one: one.share("busy_s")):
            yield from _of(rank, most, room)


def _about(found: Mapping[str, Any], ranks: Sequence[Rank], has_gpu: bool) -> Iterator[str]:
    engine = f"Traced by {found.get('engine')} ({found.get('engine_why')})"
    yield engine + (f"; the command ended with {found['ended']}" if found.get("ended") else "") + "."
    if found.get("nothing"):
        yield f"Nothing to show: {found['nothing'] if has_gpu else 'this machine has no NVIDIA GPU'}."
    for note in found.get("notes") or ():
        yield f"Note: {note}"
    for rank in ranks[:1]:
        if rank.overhead is not None:
            steps = f"{rank.step_ms:.2f} ms with the profiler, {rank.plain_step_ms:.2f} ms without it"
            yield f"Overhead: {rank.overhead:+.1%} (median step: {steps}).".replace("%", " %")
        if rank.value.get("is_cut"):
            yield "The trace was too long: only its first part is shown. Record less with --steps or --for."


def _of(rank: Rank, most: int, room: int) -> Iterator[Section]:
    yield _time(rank)
    for made in (_waits, _copies, _kernels, _operators):
        section = made(rank, most, room)
        if section.rows:
            yield section
    if rank.memory:
        yield profiled_memory.section(rank)


def _ranks(ranks: Sequence[Rank]) -> Section:
    rows = tuple(
        (
            str(rank.number if rank.number is not None else rank.value.get("pid")),
            f"{rank.step_ms:.2f}" if rank.step_ms else "-",
            _percent(rank.share("busy_s")),
            _percent(rank.share("communicating_s")),
            _percent(rank.share("exposed_communicating_s")),
        )
        for rank in ranks
    )
    return Section("Ranks", ("Rank", "Step ms", "GPU busy", "Collectives", "Not overlapped"), rows)


def _time(rank: Rank) -> Section:
    """Parts of the window; the kinds of kernels can overlap on several streams."""
    times = [("GPU busy", rank.seconds("busy_s"))]
    kinds: dict[str, float] = {}
    for row in rank.rows("kinds"):
        kinds[row["kind"]] = kinds.get(row["kind"], 0.0) + row["seconds"]
    times += [(f"  {kind} kernels", seconds) for kind, seconds in sorted(kinds.items(), key=lambda item: -item[1])]
    times += [("  copies while no kernel runs", rank.seconds("exposed_copying_s"))]
    if rank.seconds("communicating_s"):
        times += [("  collectives while nothing computes", rank.seconds("exposed_communicating_s"))]
    times += [(words, rank.gap(name) * rank.window) for name, words in GAPS.items()]
    unit, number = ("ms per step", rank.steps) if rank.steps else ("ms", 1)
    rows = ((name, f"{1000 * seconds / number:.3f}", _percent(rank.of_window(seconds))) for name, seconds in times if seconds > 0)
    return Section(_title(rank), ("", unit, "% of time"), tuple(rows))


def _title(rank: Rank) -> str:
    where = f" of rank {rank.number}" if rank.number is not None else ""
    if not rank.step_ms:
        return f"Where the time{where} goes ({rank.window:.2f} s; no optimizer steps were seen)"
    every = sorted((rank.value.get("steps") or {}).get("ms") or [rank.step_ms])
    return f"Where the time{where} goes ({rank.steps} steps of {rank.step_ms:.2f} ms, {every[0]:.2f} to {every[-1]:.2f} ms)"


def _waits(rank: Rank, most: int, room: int) -> Section:
    rows = tuple(
        (
            _cut(_line(row) or row["operator"] or row["call"], room),
            row["operator"] or row["call"],
            str(row["count"]),
            f"{1000 * row['waited_s']:.2f}",
            f"{1000 * row['idle_s']:.2f}",
        )
        for row in rank.rows("waits")[:most]
    )
    return Section("Where the host waits for the GPU", ("Line", "Operator", "Calls", "Waited ms", "GPU idle after ms"), rows)


def _copies(rank: Rank, most: int, room: int) -> Section:
    rows = tuple(
        (
            row["name"].removeprefix("Memcpy "),
            str(row["count"]),
            f"{row['bytes'] / MIB:.2f}",
            f"{row['bytes'] / row['seconds'] / 1e9:.1f}" if row["seconds"] else "-",
            f"{1000 * row['exposed_s']:.2f}",
        )
        for row in rank.rows("copies")[:most]
    )
    return Section("Copies", ("Kind", "Copies", "MiB", "GB/s", "Not overlapped ms"), rows)


def _kernels(rank: Rank, most: int, room: int) -> Section:
    head = ("Kernel", "% of time", "Calls", "Mean µs", "Tensor cores", "Occupancy", "Grid", "Block", "Registers", "Shared KiB")
    columns = len(head) if room >= WIDEST_NAME else NARROW_COLUMNS
    rows = tuple(_kernel(row, rank, room)[:columns] for row in rank.rows("kernels")[:most])
    return Section("Kernels", head[:columns], rows)


def _kernel(row: Mapping[str, Any], rank: Rank, room: int) -> Row:
    shared = row.get("shared_bytes")
    return (
        _cut(short(row["name"]), room),
        _percent(rank.of_window(row["seconds"])),
        str(row["calls"]),
        f"{1e6 * row['seconds'] / row['calls']:.1f}",
        TENSOR[row.get("tensor")],
        f"{row['occupancy']} %" if row.get("occupancy") else "-",
        _shape(row.get("grid")),
        _shape(row.get("block")),
        "-" if row.get("registers") is None else str(row["registers"]),
        "-" if shared is None else f"{shared / 1024:.1f}",
    )


def _operators(rank: Rank, most: int, room: int) -> Section:
    rows = tuple(
        (
            _cut(row["name"], room),
            str(row["calls"]),
            f"{1000 * row['gpu_s']:.2f}",
            f"{1000 * row['host_s']:.2f}",
            f"{row['tflops']:.1f}" if row.get("tflops") else "-",
            _dispatched(row, room),
        )
        for row in rank.rows("operators")[:most]
    )
    head = ("Operator", "Calls", "GPU ms", "Host ms", "TFLOP/s", "Kernel")
    columns = len(head) if any(row[-1] != "-" for row in rows) else len(head) - 1
    return Section("Operators, by the time of the kernels that they launch", head[:columns], tuple(row[:columns] for row in rows))


def _dispatched(row: Mapping[str, Any], room: int) -> str:
    """The kernel that an operator launched most often, and how many others it launched."""
    first, *others = [short(str(kernel["name"])) for kernel in row.get("kernels") or ()] or [""]
    if not first:
        return "-"
    more = f" +{len(others)}" if others else ""
    return _cut(first, room - len(more)) + more


def _line(row: Mapping[str, Any]) -> str:
    found = row.get("line") or {}
    return f"{found['file']}:{found['line']}" if found.get("file") else ""


def _shape(value: Any) -> str:
    return "×".join(map(str, value)) if isinstance(value, (list, tuple)) else "-"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _cut(text: str, room: int) -> str:
    """Of a path the end counts, of a name the beginning."""
    if len(text) <= room:
        return text
    return "…" + text[1 - room :] if "/" in text else text[: room - 1] + "…"
