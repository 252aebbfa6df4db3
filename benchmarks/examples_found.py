"""What `gpudoctor watch`, `profile` and `hang` say of every program of examples/ and of its mended twin, on a machine with a GPU.

    python benchmarks/examples_found.py --with watch|profile|hang [--only NAME,...] [--seconds 12] [--most 600] [--twins]
        [--options="--no-check …"] [--keep DIR] [-o RESULTS.jsonl]

Needs torch in the Python that runs it. Prints a JSON line a program: the problems of the job, the first first, whether the first
is one that this program has, and the seconds. With --twins the mended programs follow, of which nothing should be said. The last
line counts; programs that do not fit into --most seconds are not begun, and named. DIR gets the snapshot of each that is judged
wrongly. The exit code is 1 if fewer than 85 % of the programs get the right first problem, or a twin gets any.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
DOCTOR = [sys.executable, "-m", "gpudoctor"]
LEAST = 0.85
SLOWEST = 120.0  # seconds of one program with its report
STUCK_AFTER = 25.0  # seconds, after which a program that hangs has reached its collective

# For each program the problems of which one has to be the first; () where the command cannot see it.
HOST = ("job-host-bound", "job-gil-bound")
EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "input_bound": {"watch": HOST, "profile": ("gpu-waits-for-data-loader",)},
    "restarted_workers": {
        "watch": (*HOST, "loaders-saturated", "job-waits-for-something-else"),
        "profile": ("gpu-waits-for-data-loader",),
    },
    "one_core": {"watch": ("loaders-bound-to-few-cpus", "loaders-lack-cpus"), "profile": ("gpu-waits-for-data-loader",)},
    "small_reads": {
        "watch": (*HOST, "job-waits-for-something-else"),
        "profile": ("gpu-waits-for-python", "copies-from-pageable-memory"),
    },
    "python_bound": {"watch": HOST, "profile": ("gpu-waits-for-python",)},
    "sync_each_step": {"watch": ("job-small-kernels", *HOST), "profile": ("synchronises-in-every-step",)},
    "boolean_mask": {"watch": ("job-small-kernels", *HOST), "profile": ("synchronises-in-every-step",)},
    "pageable_copies": {"watch": ("job-copy-bound",), "profile": ("copies-from-pageable-memory",)},
    "tiny_copies": {
        "watch": ("job-copy-bound", "job-small-kernels", *HOST),
        "profile": ("copies-from-pageable-memory", "launch-bound", "synchronises-in-every-step"),
    },
    "host_copies": {"watch": ("job-copy-bound",), "profile": ("copies-from-pageable-memory", "synchronises-in-every-step")},
    "forgotten_device": {"watch": ("job-uses-no-gpu",), "profile": ("program-ignores-gpu",)},
    "fp32_training": {"watch": ("job-leaves-tensor-cores-idle",), "profile": ("matmul-in-full-fp32",)},
    "tf32_off": {"watch": ("job-leaves-tensor-cores-idle",), "profile": ("matmul-in-full-fp32",)},
    "attention_fallback": {"profile": ("attention-in-fp32",)},
    "small_kernels": {"watch": ("job-small-kernels", *HOST), "profile": ("launch-bound",)},
    "small_batches": {"watch": ("job-small-kernels", "job-memory-bound", *HOST)},
    "unfused_optimizer": {"watch": ("job-small-kernels", *HOST), "profile": ("launch-bound",)},
    "cudnn_benchmark": {"watch": HOST, "profile": ("cudnn-benchmark-with-changing-shapes",)},
    "recompilation": {"watch": HOST, "profile": ("compiles-in-steps",)},
    "default_stream": {"watch": ("job-small-kernels",)},
    "emptied_cache": {"watch": HOST, "profile": ("allocator-returns-memory-in-steps",)},
    "kept_graphs": {"watch": ("job-gpu-memory-grows",)},
    "gpu_memory_leak": {"watch": ("job-gpu-memory-grows",)},
    "host_memory_leak": {"watch": ("job-host-memory-grows",)},
    "idle_allocation": {"watch": ("gpu-allocated-and-idle",)},
    "grad_scaler": {"profile": ("loss-scale-never-settles",)},
    "straggler": {"watch": ("job-has-a-straggler", "job-gives-gpus-unequal-work")},
    "exposed_communication": {"watch": ("job-communication-bound",), "profile": ("communication-not-overlapped",)},
    "wrong_gpu": {"watch": ("job-on-busy-gpu-while-others-are-free", "job-gives-gpus-unequal-work", "job-shares-gpu")},
    "rank_leaves_early": {"hang": ("hang-rank-behind", "hang-rank-missing")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--with", dest="command", choices=["watch", "profile", "hang"], required=True)
    parser.add_argument("--only", help="names of programs")
    parser.add_argument("--seconds", type=float, default=12.0, help="that each program works")
    parser.add_argument("--twins", action="store_true", help="the mended programs too")
    parser.add_argument("--most", type=float, default=math.inf, help="seconds after which no further program is begun")
    parser.add_argument("--options", type=shlex.split, default=[], help="further options of the command")
    parser.add_argument("--keep", type=Path, help="folder for the snapshots of those that are judged wrongly")
    parser.add_argument("-o", "--output", type=Path, help="also write the JSON lines here")
    arguments = parser.parse_args()
    seen = [name for name, by in EXPECTED.items() if by.get(arguments.command)]
    names = arguments.only.split(",") if arguments.only else seen
    if unknown := sorted(set(names) - set(seen)):
        parser.error(f"{arguments.command} cannot see: {', '.join(unknown)}")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    left = [program for name in names for program in [name, *[f"{name}_mended"] * arguments.twins]]
    until = time.monotonic() + arguments.most
    while left and time.monotonic() < until:
        program = left.pop(0)
        expected = EXPECTED[program.removesuffix("_mended")][arguments.command]
        rows.append(row(arguments, program, expected))
        print(json.dumps(rows[-1]), flush=True)
    if left:
        print(f"no time for: {', '.join(left)}")
    broken = [each for each in rows if not each["is_twin"]]
    right = sum(each["is_right"] for each in broken)
    alarms = [each["program"] for each in rows if each["is_twin"] and each["problems"]]
    print(f"{right} of {len(broken)} programs right; {len(alarms)} twins with a problem: {', '.join(alarms)}")
    if arguments.output:
        arguments.output.write_text("".join(json.dumps(each) + "\n" for each in rows))
    sys.exit(right < LEAST * len(broken) or bool(alarms) or bool(left))


def row(arguments: argparse.Namespace, program: str, expected: tuple[str, ...]) -> dict[str, Any]:
    """is_right: of a broken program, that its first problem is expected; of a twin, that it has none."""
    began = time.monotonic()
    saved = arguments.keep / f"{program}-{arguments.command}.json" if arguments.keep else None
    options = [*arguments.options, "--save", str(saved)] if saved else arguments.options
    found, has_failed = problems(arguments.command, program, arguments.seconds, options)
    is_twin = program.endswith("_mended")
    is_right = not has_failed and (not found if is_twin else bool(found) and found[0] in expected)
    if saved and is_right:
        saved.unlink(missing_ok=True)
    told = {"program": program, "with": arguments.command, "problems": found, "is_right": is_right, "is_twin": is_twin}
    return {**told, **({"failed": True} if has_failed else {}), "seconds": round(time.monotonic() - began, 1)}


def problems(command: str, program: str, seconds: float, options: list[str]) -> tuple[list[str], bool]:
    """The problems of the job, in the order of the report, and whether there is no report or the profiled program failed."""
    run = [sys.executable, str(EXAMPLES / f"{program}.py"), "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        written = ["--format", "json", "-o", str(file), *options]
        code = 0
        if command == "hang":
            of_hang(run, written, seconds)
        else:
            code = finished([*DOCTOR, command, *written, "--", *run])
        if not file.exists():
            return [], True
        report = json.loads(file.read_text())
    found = [entry["problem"] for entry in report["diagnosis"] if is_of_job(entry["check"])]
    return found, command == "profile" and code != 0


def is_of_job(check: str) -> bool:
    return check.startswith(("watched", "profiled", "hang"))


def of_hang(run: list[str], written: list[str], seconds: float) -> None:
    """Asks about the program while it hangs, or until it has ended."""
    run[-1] = str(max(seconds, 4 * STUCK_AFTER))
    with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            process.wait(STUCK_AFTER)
        except subprocess.TimeoutExpired:
            finished([*DOCTOR, "hang", *written, "--pid", str(process.pid)])
            os.killpg(process.pid, signal.SIGKILL)


def finished(command: list[str]) -> int:
    """The exit code of a command after its end, or after SLOWEST; then nothing that it started is left."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            process.wait(SLOWEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode


if __name__ == "__main__":
    main()
