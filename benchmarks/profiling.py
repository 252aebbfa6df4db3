"""What `gpudoctor profile` says about small torch programs with a known fault, and what it costs them.

    python benchmarks/profiling.py [--python PYTHON] [--device cpu] [--seconds S] [--only NAME,…] [--out DIR]

For each program one line of JSON: the problems found beside the expected one, the kernel time per step beside the sum of
torch.profiler's own events in the same process, the overhead of the profiler on a step, and for some programs the step without
gpudoctor. The last line sums up. DIR gets the snapshots.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

WARMUP, STEPS, AFTER, OWN = 8, 12, 30, 6
EXPECTED = {
    "tuned": "",
    "sync": "synchronises-in-every-step",
    "copies": "copies-from-pageable-memory",
    "fp32": "matmul-in-full-fp32",
    "launches": "launch-bound",
    "attention": "attention-not-fused",
    "loader": "gpu-waits-for-data-loader",
    "recompiles": "compiles-in-steps",
    "scaler": "loss-scale-never-settles",
}
PLAIN_TOO = ("tuned", "launches", "sync")
RESULT, LOCK = "result: ", "GPUDOCTOR_BENCHMARK_LOCK"
held: Any = None

Step = Callable[[int], Any]


def mlp(torch: Any, device: str, width: int, layers: int) -> Any:
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.GELU())]
    return torch.nn.Sequential(*parts).to(device)


def tuned(torch: Any, device: str, big: bool) -> Step:
    functional = torch.nn.functional
    width, length, batch, layers = (1024, 1024, 8, 4) if big else (32, 16, 2, 1)

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.other = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.mixed, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.wide, self.back = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            parts = self.mixed(self.norm(x)).view(x.shape[0], x.shape[1], 3, -1, 64 if big else 16)
            query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
            return x + self.back(functional.gelu(self.wide(self.other(x))))

    model = torch.nn.Sequential(*(Block() for _ in range(layers))).to(device)
    compiled = torch.compile(model) if big else model
    optimizer = torch.optim.AdamW(model.parameters(), fused=device == "cuda")
    data = torch.randn(batch, length, width, device=device)

    def step(number: int) -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = compiled(data).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def training(torch: Any, device: str, width: int, layers: int, batch: int, low: bool, **more: Any) -> tuple[Any, Step]:
    """A model and its step; more: batches, an iterator over what is given to the model; read: called with each loss."""
    model = mlp(torch, device, width, layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(batch, width, device=device)
    batches, read = more.get("batches"), more.get("read")

    def step(number: int) -> None:
        given = next(batches) if batches else data
        with torch.autocast(device, dtype=torch.bfloat16, enabled=low):
            loss = model(given).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if read:
            read(loss)

    return model, step


def sync(torch: Any, device: str, big: bool) -> Step:
    seen: list[float] = []
    return training(torch, device, 4096 if big else 32, 6, 8192 if big else 8, True, read=lambda loss: seen.append(loss.item()))[
        1
    ]


def copies(torch: Any, device: str, big: bool) -> Step:
    width, batch = (4096, 4096) if big else (32, 8)

    def batches() -> Iterator[Any]:
        host = torch.randn(batch, width)
        while True:
            yield host.to(device)

    return training(torch, device, width, 2, batch, True, batches=batches())[1]


def fp32(torch: Any, device: str, big: bool) -> Step:
    return training(torch, device, 4096 if big else 32, 3, 2048 if big else 8, False)[1]


def launches(torch: Any, device: str, big: bool) -> Step:
    return training(torch, device, 64, 40 if big else 3, 32, False)[1]


def attention(torch: Any, device: str, big: bool) -> Step:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shape = (4, 16, 2048, 64) if big else (1, 2, 16, 8)
    parts = [torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    optimizer = torch.optim.SGD(parts, lr=1e-4)

    def step(number: int) -> None:
        with sdpa_kernel(SDPBackend.MATH):
            loss = torch.nn.functional.scaled_dot_product_attention(*parts).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def loader(torch: Any, device: str, big: bool) -> Step:
    width, batch = (1024, 256) if big else (32, 8)

    class Slow(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, index: int) -> Any:
            return torch.randn(width).sort().values  # some work of the host for each sample

    def batches() -> Iterator[Any]:
        for one in torch.utils.data.DataLoader(Slow(), batch_size=batch, pin_memory=device == "cuda"):
            yield one.to(device, non_blocking=True)

    return training(torch, device, width, 4, batch, True, batches=batches())[1]


def recompiles(torch: Any, device: str, big: bool) -> Step:
    model = mlp(torch, device, 256 if big else 16, 2)
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step(number: int) -> None:
        rows = 64 + max(0, number - WARMUP) // 4  # from the warm-up on another shape every four steps
        compiled(torch.randn(rows, 256 if big else 16, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def scaler(torch: Any, device: str, big: bool) -> Step:
    model = mlp(torch, device, 512 if big else 16, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaling = torch.amp.GradScaler(device)
    data = torch.randn(512, 512 if big else 16, device=device)

    def step(number: int) -> None:
        loss = model(data).square().mean() * (float("inf") if number % 2 else 1.0)
        scaling.scale(loss).backward()
        scaling.step(optimizer)
        scaling.update()
        optimizer.zero_grad()

    return step


PROGRAMS = (tuned, sync, copies, fp32, launches, attention, loader, recompiles, scaler)


def run_program(name: str, device: str) -> None:
    """The program itself: steps, then a few under torch's own profiler, as the reference."""
    import torch

    only_one_on_gpu()
    step = next(program for program in PROGRAMS if program.__name__ == name)(torch, device, device == "cuda")
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for number in range(WARMUP + 2 * STEPS + AFTER):
        if number in (WARMUP + 2 * STEPS, WARMUP + 2 * STEPS + AFTER - 1):
            synchronize()
            times.append(time.perf_counter())
        step(number)
    synchronize()
    times.append(time.perf_counter())
    told = {"step_ms": 1000 * (times[-1] - times[0]) / AFTER}
    print(RESULT + json.dumps({**told, **own_profile(torch, step, device)}), flush=True)


def only_one_on_gpu() -> None:
    """Programs start side by side, and use the GPU one after another: the lock is held until this one ends."""
    if name := os.environ.get(LOCK):
        global held
        held = Path(name).open("w")  # noqa: SIM115
        fcntl.flock(held, fcntl.LOCK_EX)


def own_profile(torch: Any, step: Step, device: str) -> dict[str, Any]:
    """Kernel time per step, as torch.profiler itself counts it."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else []
    with torch.profiler.profile(activities=activities) as profiler:
        for number in range(OWN):
            step(1000 + 2 * number)
        if device == "cuda":
            torch.cuda.synchronize()
    events = profiler.profiler.kineto_results.events()
    kernels = [event for event in events if str(event.device_type()).endswith("CUDA") and not event.name().startswith("Mem")]
    kernels = [event for event in kernels if not re.match(r"Optimizer\.|ProfilerStep|Torch-Compiled|## ", event.name())]
    return {"own_kernel_ms_per_step": sum(event.duration_ns() for event in kernels) / 1e6 / OWN}


def asked(argv: list[str]) -> tuple[int, dict[str, Any], str]:
    """Exit code, what the program printed as its result, and the end of all output."""
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)
    both = ran.stdout + ran.stderr
    lines = [line for line in both.splitlines() if line.startswith(RESULT)]
    return ran.returncode, json.loads(lines[-1].removeprefix(RESULT)) if lines else {}, both[-600:]


def examine(name: str, options: argparse.Namespace) -> dict[str, Any]:
    program = [options.python, __file__, "--program", name, "--device", options.device]
    snapshot, report = options.out / f"{name}.snapshot.json", options.out / f"{name}.json"
    own = [
        sys.executable,
        "-m",
        "gpudoctor",
        "profile",
        "--no-check",
        "--no-redact",
        "--steps",
        str(STEPS),
        "--warmup",
        str(WARMUP),
    ]
    began = time.monotonic()
    code, told, tail = asked([*own, "--save", str(snapshot), "-o", str(report), "--", *program])
    row: dict[str, Any] = {"program": name, "expected": EXPECTED[name], "seconds": round(time.monotonic() - began, 1)}
    if code or not report.exists():
        return {**row, "ok": False, "error": tail}
    found = json.loads(report.read_text(encoding="utf-8"))
    problems = [entry["problem"] for entry in found["diagnosis"]]
    profile = found["facts"]["profiled"]
    row |= {"found": problems, "messages": [entry["message"] for entry in found["diagnosis"]]}
    row["notes"] = [entry["problem"] for entry in found.get("notes", ())]
    row["ok"] = problems[:1] == [EXPECTED[name]] if EXPECTED[name] else not problems
    row["alone"] = problems in ([EXPECTED[name]], [])
    for rank in profile["ranks"][:1]:
        row |= figures(rank, told)
    row["tracer"] = [profile["nothing"], *profile["notes"]]
    if name in PLAIN_TOO and options.device == "cuda":
        _, plain, _ = asked(program)
        row["step_ms_without_gpudoctor"] = round(plain.get("step_ms", 0.0), 3)
        row["step_ms_after_profile"] = round(told.get("step_ms", 0.0), 3)
    return row


def figures(rank: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    steps = rank["steps"].get("count") or 1
    kernels, reference = 1000 * rank["kernel_s"] / steps, told.get("own_kernel_ms_per_step", 0.0)
    found: dict[str, Any] = {
        "busy_percent": round(100 * rank["busy_s"] / rank["window_s"], 1),
        "gaps_percent": {name: round(100 * gap / rank["window_s"], 1) for name, gap in rank["gaps_s"].items()},
        "kernel_ms_per_step": round(kernels, 4),
        "own_kernel_ms_per_step": round(reference, 4),
        "kernels": rank["kernel_count"],
        "events": rank["events"],
        "step_ms": rank["steps"].get("median_ms"),
        "step_ms_outside": rank["steps"].get("outside_median_ms"),
        "waits": [f"{(row.get('line') or {}).get('line')} {row['operator']} {row['count']}" for row in rank["waits"][:3]],
        "kernel_names": [row["name"][:70] for row in rank["kernels"][:3]],
    }
    if reference:
        found["kernel_time_differs_percent"] = round(100 * (kernels / reference - 1), 2)
    if found["step_ms_outside"]:
        found["overhead_percent"] = round(100 * (found["step_ms"] / found["step_ms_outside"] - 1), 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=115.0, help="start no program after so many seconds")
    parser.add_argument("--only", default="")
    parser.add_argument("--lanes", type=int, default=3, help="programs that start at the same time; one uses the GPU")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/profiling")))
    parser.add_argument("--program", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        run_program(options.program, options.device)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ[LOCK] = str(options.out / "lock")
    began = time.monotonic()
    wanted = options.only.split(",") if options.only else [*EXPECTED]

    def of(name: str) -> dict[str, Any]:
        row: dict[str, Any] = {"program": name, "skipped": "no time left"}
        if time.monotonic() - began < options.seconds:
            try:
                row = examine(name, options)
            except (subprocess.TimeoutExpired, OSError, ValueError, KeyError) as failure:
                row = {"program": name, "ok": False, "error": f"{type(failure).__name__}: {failure}"[:300]}
        print(json.dumps(row), flush=True)
        return row

    with ThreadPoolExecutor(options.lanes) as pool:
        rows = [row for row in pool.map(of, wanted) if "skipped" not in row]
    differs = [abs(row["kernel_time_differs_percent"]) for row in rows if "kernel_time_differs_percent" in row]
    overheads = [row["overhead_percent"] for row in rows if "overhead_percent" in row]
    summed = {
        "right": sum(bool(row.get("ok")) for row in rows),
        "of": len(rows),
        "kernel_time_differs_percent": {"median": statistics.median(differs), "most": max(differs)} if differs else None,
        "overhead_percent": {"median": statistics.median(overheads), "most": max(overheads)} if overheads else None,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(summed), flush=True)


if __name__ == "__main__":
    main()
