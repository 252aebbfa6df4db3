"""What `gpudoctor watch` says of small programs whose limit is known, what it costs, and how its busy time agrees with CUPTI's.

    python benchmarks/watching.py [--python PYTHON_WITH_TORCH] [--only gemm,clone] [--seconds 5]

Each program runs alone on GPU 0 under `gpudoctor watch`: some seconds as it is, then three under torch.profiler, which records
each kernel by CUPTI. A line of JSON for each: the problems found, the problem expected, the share of these three seconds in which
a kernel ran by CUPTI, by GPM and by NVML, the readings, and what watching took. The last line sums up. The exit code is 1 where a
verdict is wrong, the busy time differs by more than 3 points, or watching took more than 1 % of a core or 60 MiB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MOST_POINTS, MOST_CORES, MOST_MIB = 3.0, 0.01, 60.0
SLICE_SECONDS = 3.0

COMMON = """
import json, sys, time
import torch
assert torch.cuda.is_available(), "torch sees no GPU"
SECONDS, SLICE = float(sys.argv[1]), float(sys.argv[2])
device = torch.device("cuda", 0)
CUDA = [torch.profiler.ProfilerActivity.CUDA]
with torch.profiler.profile(activities=CUDA):
    pass  # CUPTI takes seconds to start: before the first kernel, not between them

def run(step, every=1):
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    count, began = 0, time.monotonic()
    while time.monotonic() - began < SECONDS:
        for _ in range(every):
            step()
        torch.cuda.synchronize()
        count += every
    rate = count / (time.monotonic() - began)
    with torch.profiler.profile(activities=CUDA) as profile:
        first = time.monotonic()
        while time.monotonic() - first < SLICE:
            for _ in range(every):
                step()
            torch.cuda.synchronize()
        last = time.monotonic()
    kernels, all = [], []
    for event in profile.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            all.append((event.start_ns(), event.start_ns() + event.duration_ns()))
            if not event.name().startswith(("Memcpy", "Memset")):
                kernels.append(all[-1])

    def busy(spans):
        total = end = 0
        for start, stop in sorted(spans):
            total += max(0, stop - max(start, end))
            end = max(end, stop)
        return total / 1e9 / (last - first)

    told = {"kernels": len(kernels), "busy": busy(kernels), "with_copies": busy(all)}
    told |= {"first": first, "last": last, "steps_per_s": rate}
    print("TOLD " + json.dumps(told), flush=True)
"""

# Name -> the problems of which one is expected first (none: it is well tuned), and the program.
PROGRAMS: dict[str, tuple[tuple[str, ...], str]] = {
    "loader": (
        ("loaders-saturated", "loaders-lack-cpus"),
        """
class Data(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            total = 0
            for number in range(400_000):
                total += number * number % 7
            yield torch.full((1024, 1024), float(total % 3))

if __name__ == "__main__":
    weights = torch.randn(1024, 1024, device=device)
    batches = iter(torch.utils.data.DataLoader(Data(), batch_size=None, num_workers=1, pin_memory=True))
    run(lambda: [next(batches).to(device, non_blocking=True) @ weights for _ in range(4)])
""",
    ),
    "gemm": (
        (),
        """
a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
run(lambda: torch.mm(a, b), every=20)
""",
    ),
    "clone": (
        (),
        """
a = torch.randn(1 << 28, device=device)
b = torch.empty_like(a)
run(lambda: torch.add(a, 1.0, out=b), every=50)
""",
    ),
    "small": (
        ("job-small-kernels",),
        """
a, b = (torch.randn(64, 64, device=device) for _ in range(2))
c = torch.empty_like(a)
run(lambda: torch.mm(a, b, out=c), every=2000)
""",
    ),
    "pageable": (
        ("job-copy-bound",),
        """
host = torch.randn(64, 1024, 1024)
weights = torch.randn(1024, 1024, device=device)
run(lambda: host.to(device) @ weights)
""",
    ),
}
SHOWN = ("gpu0.graphics", "gpu0.busy", "gpu0.main_thread", "gpu0.loader_cores")
NOTES = {"clone": "job-memory-bound"}


def watched(name: str, python: str, seconds: float, folder: Path) -> dict[str, Any]:
    expected, source = PROGRAMS[name]
    script, saved = folder / f"{name}.py", folder / f"{name}.json"
    script.write_text(COMMON + source)
    argv = [sys.executable, "-m", "gpudoctor", "watch", "--no-redact", "--save", str(saved), "--format", "json", "--"]
    began = time.monotonic()
    done = subprocess.run(
        [*argv, python, str(script), str(seconds), str(SLICE_SECONDS)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    row: dict[str, Any] = {"program": name, "expected": list(expected), "seconds": round(time.monotonic() - began, 1)}
    line = next((line for line in done.stderr.splitlines() if line.startswith("TOLD ")), "")
    if not line or not saved.exists():
        return {**row, "right": False, "failed": f"exit code {done.returncode}: {(done.stderr + done.stdout)[-1500:]}"}
    return {**row, **judged(name, json.loads(done.stdout), json.loads(saved.read_text()), json.loads(line[5:]))}


def judged(name: str, report: dict[str, Any], snapshot: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    seen = snapshot["replies"]["job-watch"]["value"]
    problems, notes = ([entry["problem"] for entry in report[kind]] for kind in ("diagnosis", "notes"))
    expected = PROGRAMS[name][0]
    right = (problems[:1] == [problem for problem in problems[:1] if problem in expected]) and bool(problems) == bool(expected)
    busy = {source: _within(seen, f"gpu0.{source}", told) for source in ("graphics", "busy", "sm")}
    shown = busy["graphics"] if busy["graphics"] is not None else busy["busy"]
    readings = {name: row["mean"] for name, row in seen["gpus"]["0"]["readings"].items()}
    return {
        "right": right and (name not in NOTES or NOTES[name] in notes),
        "problems": problems,
        "notes": notes,
        "messages": [entry["message"] for entry in (*report["diagnosis"], *report["notes"])],
        "checks": {row["id"]: row["message"][:200] for row in report["checks"] if row["id"].startswith("watched-")},
        "busy_by_cupti": round(100 * told["busy"], 2),
        "busy_by_cupti_with_copies": round(100 * told["with_copies"], 2),
        "busy_by_gpm": busy["graphics"],
        "busy_by_nvml": busy["busy"],
        "points": None if shown is None else round(abs(shown - 100 * told["busy"]), 2),
        "kernels": told["kernels"],
        "steps_per_s": round(told["steps_per_s"], 1),
        "readings": readings,
        "refused": seen["gpus"]["0"]["refused"],
        "gpm": seen["gpus"]["0"]["gpm"],
        "used": seen["used"],
        "hidden_pids": seen["hidden_pids"],
        "processes": {
            pid: [row["role"], row["name"], row["cores"], row["busiest_thread"]] for pid, row in seen["processes"].items()
        },
        "start_cpu_seconds": seen["own"]["start_seconds"],
        "windows": {name: values for name, values in seen["timeline"]["columns"].items() if name in SHOWN},
        "own_percent_of_a_core": round(100 * seen["own"]["cores"], 2),
        "own_mib": seen["own"]["rss_mib"],
        "interval": seen["own"]["interval"],
    }


def _within(seen: dict[str, Any], column: str, told: dict[str, Any]) -> float | None:
    """The mean over the stretches in the profiled seconds; not at their edges, where a reading also covers what is outside."""
    every, values = seen["timeline"]["every"], seen["timeline"]["columns"].get(column, ())
    began, edge = seen["began"], 2.5 * seen["own"]["interval"]
    inside = [
        value
        for at, value in enumerate(values)
        if value is not None and told["first"] + edge <= began + at * every and began + (at + 1) * every <= told["last"] - edge
    ]
    return round(statistics.fmean(inside), 2) if inside else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="one that has torch")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="names, separated by commas")
    parser.add_argument("--seconds", type=float, default=5.0, help="before the profiled seconds")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only.split(","):
            rows.append(watched(name, arguments.python, arguments.seconds, Path(folder)))
            print(json.dumps(rows[-1]), flush=True)
    points = [row["points"] for row in rows if row.get("points") is not None]
    summed = {
        "right": sum(row["right"] for row in rows),
        "of": len(rows),
        "most_points": max(points, default=None),
        "most_percent_of_a_core": max((row.get("own_percent_of_a_core", 0.0) for row in rows), default=None),
        "most_mib": max((row.get("own_mib", 0.0) for row in rows), default=None),
    }
    print(json.dumps(summed))
    too_much = any(row.get("own_percent_of_a_core", 0) > 100 * MOST_CORES or row.get("own_mib", 0) > MOST_MIB for row in rows)
    sys.exit(summed["right"] < len(rows) or len(points) < len(rows) or max(points) > MOST_POINTS or too_much)


if __name__ == "__main__":
    main()
