"""How long gpudoctor takes and how much memory it needs, beside what its users would run otherwise, in one run.

    python benchmarks/quick.py [--runs 5] [--python PATH]

Prints median wall-clock seconds, the peak memory of the command's largest process (a child that loads CUDA is one) and of
gpudoctor itself, and the ratio to `python -m torch.utils.collect_env` where the examined Python has torch. Machines are
noisy: compare rows of one run, never of two.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

DOCTOR = [sys.executable, "-m", "gpudoctor"]
# The same, telling at its end the memory of its own process, without those that it started.
ITSELF = """
import resource, sys
from gpudoctor.cli import main
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
"""


def measure(command: list[str], runs: int) -> tuple[float, float]:
    """Median seconds and peak memory in MiB (the largest process of the tree) over some runs, after one to warm up."""
    seconds, mebibytes = [], 0.0
    for _ in range(runs + 1):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        seconds.append(time.perf_counter() - start)
        mebibytes = max(mebibytes, usage.ru_maxrss / 1024)
    return statistics.median(seconds[1:]), mebibytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--python", default=sys.executable, help="the Python to examine")
    arguments = parser.parse_args()
    rows = {
        "gpudoctor --help": [*DOCTOR, "--help"],
        "gpudoctor check --level quick": [*DOCTOR, "check", "--level", "quick", "--python", arguments.python],
        "gpudoctor images list": [*DOCTOR, "images", "list"],
        "nvidia-smi": ["nvidia-smi"],
        "torch.utils.collect_env": [arguments.python, "-m", "torch.utils.collect_env"],
    }
    measured = {}
    print(f"{'command':32} {'seconds':>8} {'MiB':>6}")
    for name, command in rows.items():
        try:
            measured[name] = measure(command, arguments.runs)
        except FileNotFoundError:
            print(f"{name:32} {'-':>8}")
            continue
        print(f"{name:32} {measured[name][0]:8.3f} {measured[name][1]:6.0f}")
    peer, ours = measured["torch.utils.collect_env"][0], measured["gpudoctor check --level quick"][0]
    print(f"\ncheck takes {ours / peer:.2f} of collect_env's time")
    own = [sys.executable, "-c", ITSELF, "check", "--python", arguments.python]
    print("gpudoctor itself:", subprocess.run(own, capture_output=True, text=True).stderr.split()[-1], "MiB")


if __name__ == "__main__":
    main()
