"""What `gpudoctor hang` says about programs that hang on purpose: two ranks, with one GPU each or on CPUs.

    python benchmarks/hanging.py [--backend gloo] [--only early,differ] [--seconds 3]

Prints one JSON line for each program: what was expected, what was found and how long it took. NCCL's RAS socket and the flight
recorder are on. All ranks are started at once and wait for their turn, so that importing torch costs its time only once.
The exit code is 1 if a program was judged wrongly.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RANK = Path(__file__).with_name("hanging_rank.py")
WORLD = 2
# Program -> the problems of which one has to be the first in the diagnosis; none for one that moves.
EXPECTED: dict[str, tuple[str, ...]] = {
    "healthy": (),
    "early": ("hang-rank-behind",),
    "differ": ("hang-collectives-differ",),
    "stopped": ("hang-process-stopped",),
    "loader": ("hang-nobody-writes",),
    "kernel": ("hang-gpu-kernel-endless",),
}
ON_GPU_ONLY = {"kernel"}
START_SECONDS = 60.0


class Job:
    """The ranks of one program, which wait for `go`."""

    def __init__(self, case: str, backend: str, folder: Path) -> None:
        self.case = case
        self.go, self.ready = folder / f"{case}.go", folder / f"{case}.ready"
        self.logs = [folder / f"{case}.{rank}.log" for rank in range(WORLD)]
        for left in folder.glob(f"{case}.*"):
            left.unlink()
        port, ras = _free_port(), _free_port()
        common = {
            "WORLD_SIZE": str(WORLD),
            "LOCAL_WORLD_SIZE": str(WORLD),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "NCCL_RAS_ADDR": f"localhost:{ras}",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / f"{case}.pipe."),
            "TORCH_FR_DUMP_TEMP_FILE": str(folder / f"{case}.trace_rank_"),
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / f"{case}.trace_rank_"),
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "OMP_NUM_THREADS": "1",
        }
        self.ranks = []
        for rank, log in enumerate(self.logs):
            variables = {**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            argv = [sys.executable, str(RANK), case, backend, str(self.go), str(self.ready)]
            with log.open("wb") as out:
                self.ranks.append(
                    subprocess.Popen(
                        argv, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                    )
                )

    def start(self) -> bool:
        """Whether both ranks reached the place where they hang."""
        self.go.touch()
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and all(rank.poll() is None for rank in self.ranks):
            if all(Path(f"{self.ready}.{rank}").exists() for rank in range(WORLD)):
                time.sleep(1.0)  # until the last call is entered
                if self.case == "stopped":
                    self.ranks[1].send_signal(signal.SIGSTOP)
                    time.sleep(0.5)
                return True
            time.sleep(0.05)
        return False

    def end(self) -> None:
        """With the workers of their loaders, which hold the GPU as long as they live."""
        for rank in self.ranks:
            with contextlib.suppress(OSError):
                os.killpg(rank.pid, signal.SIGKILL)
        for rank in self.ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.wait(10)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def judged(job: Job, seconds: float, folder: Path, dump: bool) -> dict[str, Any]:
    """One row of the result. dump: with the flight recorders of the ranks."""
    row: dict[str, Any] = {"program": job.case, "expected": list(EXPECTED[job.case])}
    began = time.monotonic()
    if not job.start():
        said = [log.read_text(errors="replace")[-1500:] for log in job.logs]
        return {**row, "right": False, "failed": "it did not reach its hang", "said": said}
    row["start_seconds"] = round(time.monotonic() - began, 1)
    snapshot = folder / f"{job.case}.json"
    argv = [sys.executable, "-m", "gpudoctor", "hang", "--pid", str(job.ranks[0].pid), "--for", str(seconds)]
    argv += ["--dump"] if dump else []
    argv += ["--format", "json", "--no-redact", "--save", str(snapshot)]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=90, check=False)
    row |= {"seconds": round(time.monotonic() - began, 1), "exit": done.returncode}
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {**row, "right": False, "said": (done.stderr or done.stdout)[-1500:]}
    found = [entry["problem"] for entry in report["diagnosis"]]
    row["found"] = found
    row["messages"] = [entry["message"] for entry in report["diagnosis"]]
    row["confidence"] = [entry["confidence"] for entry in report["diagnosis"]]
    row["checks"] = {check["id"]: check["message"] for check in report["checks"] if check["id"].startswith("hang")}
    row["right"] = found[:1] == [] if not EXPECTED[job.case] else bool(found) and found[0] in EXPECTED[job.case]
    return {**row, **_seen(snapshot)}


def _seen(snapshot: Path) -> dict[str, Any]:
    """What the GPUs and NCCL said, for the record."""
    try:
        value = json.loads(snapshot.read_text())["replies"]["job-hang"]["value"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    gpus = [{"index": gpu["index"], "busy": gpu["busy"], "watts": gpu["watts"]} for gpu in value["gpus"]]
    return {
        "gpus": gpus,
        "no_gpus": value["no_gpus"],
        "ras": value["ras"],
        "no_ras": value["no_ras"],
        "no_stacks": value["no_stacks"],
        "no_dumps": value["no_dumps"],
        "dumps": len(value["dumps"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--only", default="", help="these programs, separated by commas")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--dump", action="store_true", help="use the flight recorders of the ranks as well")
    parser.add_argument("--keep", type=Path, help="keep logs and snapshots in this folder")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(EXPECTED)
    names = [name for name in names if arguments.backend == "nccl" or name not in ON_GPU_ONLY]
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="hanging-"))
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [Job(name, arguments.backend, folder) for name in names]
    wrong = 0
    try:
        for job in jobs:
            row = judged(job, arguments.seconds, folder, arguments.dump)
            wrong += not row["right"]
            print(json.dumps(row), flush=True)
            job.end()
    finally:
        for job in jobs:
            job.end()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
