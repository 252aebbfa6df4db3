"""One kernel in depth: Nsight Compute (ncu) runs the command and repeats some launches of the kernel with counters."""

from __future__ import annotations

import csv
import glob
import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

LOG, KEPT = "ncu.csv", "kernel"
PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda-*/bin/ncu")
LAUNCHES, SKIPPED = 5, 20
IMPORT_SECONDS = 120
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = (
    *("long_scoreboard", "short_scoreboard", "barrier", "wait", "math_pipe_throttle", "mio_throttle", "lg_throttle"),
    *("not_selected", "no_instruction", "membar", "sleeping", "gmma"),
)
METRICS = {
    "gpu__time_duration.sum": "nanoseconds",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_percent",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_percent",
    "sm__maximum_warps_per_active_cycle_pct": "theoretical_occupancy_percent",
    "launch__waves_per_multiprocessor": "waves",
    "launch__registers_per_thread": "registers",
    "launch__shared_mem_per_block": "shared_bytes",
    "launch__grid_size": "blocks",
    "launch__block_size": "threads_per_block",
    **{STALL.format(name): f"stall_{name}" for name in STALLS},
}
MISSING = "ncu is not installed: not found on PATH, in a toolkit or in /opt/nvidia"
DENIED = "ERR_NVGPUCTRPERM"
ERROR = re.compile(r"==ERROR== ([^\n]+)")


def path() -> str:
    """ "" if Nsight Compute is not installed."""
    places = [place for pattern in PLACES for place in sorted(glob.glob(pattern), reverse=True) if os.access(place, os.X_OK)]  # noqa: PTH207
    return shutil.which("ncu") or next(iter(places), "")


def before(ncu: str, kernel: str, folder: Path, is_kept: bool) -> tuple[str, ...]:
    """The words before the command. The clocks stay as they are: locking them would change a setting of the machine."""
    options = ("--csv", "--print-units", "base", "--clock-control", "none", "--target-processes", "all")
    chosen = ("--kernel-name-base", "demangled", "--kernel-name", f"regex:{re.escape(kernel)}")
    some = ("--launch-skip", str(SKIPPED), "--launch-count", str(LAUNCHES), "--metrics", ",".join(METRICS))
    kept = ("--export", str(folder / KEPT)) if is_kept else ()
    return (ncu, *options, *chosen, *some, *kept, "--log-file", str(folder / LOG))


def told(ncu: str, kernel: str, folder: Path) -> dict[str, Any]:
    """As the reply of a profile: without ranks, with the kernel."""
    try:
        text = (folder / LOG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"ranks": [], "notes": [], "nothing": "ncu wrote nothing"}
    found = of_log(text) or of_report(ncu, folder / f"{KEPT}.ncu-rep")
    nothing = "" if found else _nothing(kernel, text)
    return {"ranks": [], "notes": [], "nothing": nothing, **({"kernel": {"wanted": kernel, **found}} if found else {})}


def of_report(ncu: str, report: Path) -> dict[str, Any]:
    """Of a report that was kept: with it, ncu prints no values."""
    if not report.exists():
        return {}
    line = (ncu, "--import", str(report), "--page", "raw", "--csv", "--print-units", "base")
    try:
        ran = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, timeout=IMPORT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return of_raw(ran.stdout.decode("utf-8", "replace"))


def of_raw(text: str) -> dict[str, Any]:
    """A column for each metric, a line for each launch, and a line of units before them."""
    rows = [*csv.DictReader(line for line in text.splitlines() if line.startswith('"'))]
    long = [
        {"ID": row.get("ID"), "Kernel Name": row.get("Kernel Name"), "Metric Name": name, "Metric Value": row.get(name)}
        for row in rows
        if row.get("ID")
        for name in METRICS
    ]
    return _medians(long)


def of_log(text: str) -> dict[str, Any]:
    """Medians over the launches; empty if none was measured."""
    return _medians(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))


def _medians(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    values: dict[str, list[float]] = {}
    names: dict[str, None] = {}
    launches = set()
    for row in rows:
        metric, value = METRICS.get(row.get("Metric Name") or ""), _number(row.get("Metric Value"))
        if metric and value is not None:
            values.setdefault(metric, []).append(value)
            names[row.get("Kernel Name") or ""] = None
            launches.add(row.get("ID"))
    if not values:
        return {}
    found = {name: round(statistics.median(each), 4) for name, each in values.items()}
    stalls = {name.removeprefix("stall_"): found.pop(name) for name in [*found] if name.startswith("stall_")}
    return {"name": next(iter(names)), "launches": len(launches), **found, "stalls": dict(_most(stalls))}


def _most(stalls: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Cycles per issued instruction for which a warp was stalled, the longest first."""
    yield from sorted(((name, value) for name, value in stalls.items() if value >= 0.05), key=lambda item: -item[1])


def _nothing(kernel: str, text: str) -> str:
    if DENIED in text:
        return f"ncu is not permitted to read counters ({DENIED}): see gpudoctor explain profiler-counters-restricted"
    if error := ERROR.search(text):
        return f"ncu: {error[1].strip()}"
    return f"no kernel with {kernel} in its name was launched more than {SKIPPED} times"


def _number(text: str | None) -> float | None:
    """ "16,896" and "5.12"; None for "n/a"."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
