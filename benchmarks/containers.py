"""How much longer `gpudoctor run` and `gpudoctor check --image` take than `docker run IMAGE true`, in one run, in turns.

    python benchmarks/containers.py --image IMAGE [--runs 10]

Prints median wall-clock seconds of docker with nothing else, of docker with the options that gpudoctor gives it, of gpudoctor
run, and of a quick check; and their difference to the first. The exit code is 1 where one is more than it should be.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import subprocess
import sys
import time

DOCTOR = [sys.executable, "-m", "gpudoctor"]
MOST_SECONDS = {"gpudoctor run": 0.4, "gpudoctor check --image": 1.5}


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--image", required=True, help="one that is already here")
    parser.add_argument("--runs", type=int, default=10)
    arguments = parser.parse_args()
    ours = [*DOCTOR, "run", "--gpus", "none", "--network", "none", "--image", arguments.image]
    check = [*DOCTOR, "check", "--level", "quick", "--gpus", "none", "--docker-option=--network=none", "--image", arguments.image]
    shown = subprocess.run(
        [*ours, "--dry-run", "--", "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    rows = {
        "docker run": ["docker", "run", "--rm", "--network", "none", arguments.image, "true"],
        "docker run, gpudoctor's options": shlex.split(shown.stdout.replace("\\\n", "")),
        "gpudoctor run": [*ours, "--", "true"],
        "gpudoctor check --image": check,
    }
    measured: dict[str, list[float]] = {name: [] for name in rows}
    for run in range(arguments.runs + 1):
        for name, command in rows.items():
            measured[name] += [seconds(command)] if run else []
            if not run:
                seconds(command)
    medians = {name: statistics.median(values) for name, values in measured.items()}
    print(f"{'command':34} {'seconds':>8}")
    for name, median in medians.items():
        print(f"{name:34} {median:8.3f}")
    more = {name: medians[name] - medians["docker run"] for name in MOST_SECONDS}
    for name, most in MOST_SECONDS.items():
        print(f"{name} takes {more[name]:.2f} s more than docker run (at most {most})")
    sys.exit(any(more[name] > most for name, most in MOST_SECONDS.items()))


if __name__ == "__main__":
    main()
