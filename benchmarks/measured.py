"""gpudoctor's measurements beside the field's own tools, in one run on one machine.

    python benchmarks/measured.py --python PATH [--nvbandwidth PATH] [--nccl-tests PATH] [--runs 3]

GEMM beside triton.testing.do_bench, memory and host transfers beside nvbandwidth, all-reduce beside nccl-tests' all_reduce_perf;
both are to be built on the machine (https://github.com/NVIDIA/nvbandwidth, https://github.com/NVIDIA/nccl-tests). Prints each
figure, the ratio to the peer's and the spread between our own runs. Compare rows of one run, never of two.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time

GEMM = """
import json, torch
from triton.testing import do_bench
found = {}
def product(dtype, tf32=False, size=8192):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in "ab")
    return 2 * size**3 / do_bench(lambda: a @ b, return_mode="median", warmup=500, rep=500) / 1e9
found["GEMM fp64"] = product(torch.float64)
found["GEMM fp32"] = product(torch.float32)
found["GEMM tf32"] = product(torch.float32, tf32=True)
found["GEMM fp16"] = product(torch.float16)
found["GEMM bf16"] = product(torch.bfloat16)
a = torch.randn(8192, 8192, device="cuda").to(torch.float8_e4m3fn)
b = torch.randn(8192, 8192, device="cuda").to(torch.float8_e4m3fn).t()
one = torch.tensor(1.0, device="cuda")
fp8 = lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
if torch.cuda.get_device_capability() >= (8, 9):
    found["GEMM fp8"] = 2 * 8192**3 / do_bench(fp8, return_mode="median", warmup=500, rep=500) / 1e9
print(json.dumps(found))
"""
NVBANDWIDTH = {
    "memory memcpy": ("device_local_copy", 2),  # it counts what is read, and not what is written
    "pinned to GPU": ("host_to_device_memcpy_ce", 1),
    "pinned from GPU": ("device_to_host_memcpy_ce", 1),
}
ROW = re.compile(r"^ *0 +(\d+\.\d+)", re.MULTILINE)


def ours(python: str) -> dict[str, float]:
    """Figure -> value on GPU 0, or of all GPUs together. Prints what the run diagnosed."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "gpudoctor", "check", "--python", python, "--format", "json"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    problems = [entry["problem"] for entry in report["diagnosis"]]
    print(f"{time.perf_counter() - start:.1f} s: {', '.join(problems) or 'nothing is wrong'}", flush=True)
    figures = [figure for each in report["measured"]["figures"].values() for figure in each]
    return {figure["what"]: figure["value"] for figure in figures if figure["gpu"] in (0, None)}


def do_bench(python: str, runs: int) -> dict[str, float]:
    """The median of some runs: at their power limit, GPUs are not always equally fast."""
    done = [subprocess.run([python, "-c", GEMM], capture_output=True, text=True) for _ in range(runs)]
    found = [json.loads(each.stdout) for each in done if each.returncode == 0]
    return {name: statistics.median(each[name] for each in found) for name in found[0]} if found else {}


def nvbandwidth(path: str) -> dict[str, float]:
    found = {}
    for figure, (test, times) in NVBANDWIDTH.items():
        row = ROW.search(subprocess.run([path, test], capture_output=True, text=True).stdout)
        if row:
            found[figure] = times * float(row[1])
    return found


def nccl_tests(path: str, gpus: int) -> dict[str, float]:
    """Bus bandwidth of 1 GiB in bf16, in place."""
    command = [path, "-b", "1G", "-e", "1G", "-g", str(gpus), "-d", "bfloat16", "-n", "20", "-w", "5"]
    done = subprocess.run(command, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines() if line.strip().startswith(str(1 << 30))]
    return {"all-reduce 1 GiB, bus bandwidth": float(rows[0][-2])} if rows else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="the Python to examine, with torch and triton")
    parser.add_argument("--nvbandwidth", help="the program built from NVIDIA/nvbandwidth")
    parser.add_argument("--nccl-tests", help="all_reduce_perf built from NVIDIA/nccl-tests")
    parser.add_argument("--gpus", type=int, default=1, help="how many GPUs there are")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    runs = [ours(arguments.python) for _ in range(arguments.runs)]
    peers = do_bench(arguments.python, arguments.runs)
    peers |= nvbandwidth(arguments.nvbandwidth) if arguments.nvbandwidth else {}
    peers |= nccl_tests(arguments.nccl_tests, arguments.gpus) if arguments.nccl_tests else {}
    print(f"{'figure':36} {'gpudoctor':>10} {'spread':>7} {'peer':>10} {'ratio':>6}")
    for figure in runs[0]:
        values = [run[figure] for run in runs if figure in run]
        median = statistics.median(values)
        spread = (max(values) - min(values)) / median if median else 0.0
        peer = peers.get(figure)
        beside = f"{peer:10.1f} {median / peer:6.3f}" if peer else ""
        print(f"{figure:36} {median:10.2f} {spread:7.1%} {beside}")


if __name__ == "__main__":
    main()
