"""One kernel in depth: its counters, its code, and what the autotuner measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from gpudoctor.judging.jobs.kernel_names import short
from gpudoctor.report.section import Section

MOST_CONFIGS, WIDEST_FILE = 8, 20
BEFORE = "These launches were made by the autotuner, of another configuration than the one that it chose."
COUNTERS = {
    "nanoseconds": ("Time", "{:.0f} ns"),
    "sm_percent": ("Compute throughput", "{:.1f} % of peak"),
    "dram_percent": ("Memory throughput", "{:.1f} % of peak"),
    "l2_percent": ("L2 throughput", "{:.1f} % of peak"),
    "occupancy_percent": ("Achieved occupancy", "{:.1f} %"),
    "theoretical_occupancy_percent": ("Theoretical occupancy", "{:.1f} %"),
    "waves": ("Waves per multiprocessor", "{:.2f}"),
    "blocks": ("Blocks", "{:.0f}"),
    "threads_per_block": ("Threads per block", "{:.0f}"),
    "registers": ("Registers per thread", "{:.0f}"),
    "shared_bytes": ("Shared memory per block", "{:.0f} B"),
}


def counters(kernel: Mapping[str, Any]) -> Section:
    rows = [(words, form.format(kernel[name])) for name, (words, form) in COUNTERS.items() if kernel.get(name) is not None]
    rows += [
        (f"Stalled: {name.replace('_', ' ')}", f"{value:.2f} cycles") for name, value in (kernel.get("stalls") or {}).items()
    ]
    title = f"{short(str(kernel.get('name')))} ({kernel.get('launches')} launches, medians; stalls per issued instruction)"
    return Section(title, ("Counter", "Value"), tuple(rows))


def sections(kernel: Mapping[str, Any], most: int, room: int) -> Iterator[Section]:
    if kernel.get("name"):
        found = counters(kernel)
        yield replace(found, lines=(BEFORE,)) if kernel.get("measured_before_the_choice") else found
    for choice in (kernel.get("tuned") or ())[:most]:
        yield _tuned(choice, most)
    if code := kernel.get("code"):
        yield _variants(code, most)
        yield _lines(code, most, room)


def _tuned(choice: Mapping[str, Any], most: int) -> Section:
    """The fastest first: it is what the autotuner chose."""
    configs = choice["configs"]
    best = configs[0]["ms"]
    rows = tuple(
        (
            _settings(one["config"]),
            f"{1000 * one['ms']:.2f}" if one["ms"] is not None else "cannot run",
            f"{one['ms'] / best:.2f} ×" if best and one["ms"] is not None else "-",
        )
        for one in configs[: max(most, MOST_CONFIGS)]
    )
    key = f", for {choice['key']}" if choice.get("key") else ""
    title = f"What {choice['by']}'s autotuner measured for {choice['kernel']}{key}"
    return Section(title, ("Configuration", "µs", "Of the fastest"), rows)


def _settings(config: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())


def _variants(code: Mapping[str, Any], most: int) -> Section:
    """Of the same function, compiled with other settings."""
    rows = tuple(_variant(one, number == code["chosen"]) for number, one in enumerate(code["variants"][:most]))
    head = ("Variant", "Warps", "Stages", "Registers", "Stack B", "Shared B", "Instructions", "Local", "Tensor")
    lines = [f"Made from: {line}" for line in code.get("made_from") or ()][:most]
    lines += [f"Without the machine's code: {code['nothing']}."] if code.get("nothing") else []
    return Section(f"{code['function']}, from {code['origin']} (Local: spilled registers)", head, rows, tuple(lines))


def _variant(one: Mapping[str, Any], is_chosen: bool) -> tuple[str, ...]:
    shared = (one.get("shared_bytes") or 0) + (one.get("dynamic_shared_bytes") or 0)
    has_code = bool(one.get("instructions"))
    return (
        "shown below" if is_chosen else "other",
        _number(one.get("warps")),
        _number(one.get("stages")),
        _number(one.get("registers")),
        _number(one.get("stack_bytes")),
        str(shared),
        _number(one.get("instructions") or None),
        _number(one.get("local") if has_code else None),
        _number(one.get("tensor") if has_code else None),
    )


def _end(name: str) -> str:
    """Of a name such as Inductor gives to its files, which fill a line."""
    return name if len(name) <= WIDEST_FILE else "…" + name[1 - WIDEST_FILE :]


def _number(value: Any) -> str:
    return "-" if value is None else str(value)


def _lines(code: Mapping[str, Any], most: int, room: int) -> Section:
    """The lines with most instructions, in the order of the source."""
    every: Sequence[Mapping[str, Any]] = code["lines"]
    most_first = sorted(every, key=lambda row: -(row["sass"] or row["ptx"]))[: max(most, 2 * MOST_CONFIGS)]
    rows = tuple(
        (
            f"{_end(PurePath(row['file']).name)}:{row['line']}",
            row["text"][:room],
            *(str(row[name]) for name in ("ptx", "sass", "global", "shared", "local", "tensor")),
        )
        for row in every
        if row in most_first
    )
    head = ("Line", "Source", "PTX", "SASS", "Global", "Shared", "Local", "Tensor")
    left = len(every) - len(rows)
    more = (f"{left} lines with fewer instructions are not shown (-v shows more).",) if left else ()
    return Section("Instructions of each line, and what they use", head, rows, more)
