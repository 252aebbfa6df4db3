"""How fast `gpudoctor explain` reads large logs, beside `grep -c` of a fixed string on the same file, in one run.

    python benchmarks/evidence.py [--mb 300] [--runs 3]

Each log has one message in its middle, which must be named. Prints the median MB/s of the whole command, its peak memory, and
how many times as long it takes as grep. Machines are noisy: compare rows of one run, never of two.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MESSAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
XID = "[  100.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OF_KERNEL = (
    "NVRM: Xid (PCI:0000:5e:00): 31, pid=4242, name=python, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
    "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
    "usb 1-1: new high-speed USB device number 5 using xhci_hcd",
    'audit: type=1400 audit(1.1:2): apparmor="ALLOWED" operation="open"',
    "docker0: port 1(veth1) entered blocking state",
)


def training(number: int, chance: random.Random) -> str:
    return f"2026-11-21 10:00:{number % 60:02d},123 INFO trainer: epoch 3 step {number} loss {chance.random():.4f} lr 1.0e-4"


def kernel(number: int, chance: random.Random) -> str:
    return f"[{number / 1000:12.6f}] {chance.choice(OF_KERNEL)}"


WORDS = (
    *("request", "user", "session", "cache", "worker", "queue", "handler", "payload", "commit", "retry", "order", "table"),
    *("index", "client", "server", "upstream", "token", "shard", "replica", "bucket", "message", "topic", "partition", "offset"),
    *("lease", "node", "pod", "service", "job", "batch", "stage", "pipeline"),
)


def application(number: int, chance: random.Random) -> str:
    a, b, c, d = chance.choices(WORDS, k=4)
    level = chance.choice(("INFO", "INFO", "DEBUG", "WARN"))
    return (
        f"2026-11-21T10:{number // 60 % 60:02d}:{number % 60:02d}Z {level} [{a}-{chance.randrange(64)}]"
        f" {b} {c} id={chance.getrandbits(64):016x} took {chance.random() * 100:.2f} ms, {d}={chance.randrange(99999)}"
    )


def mixed(number: int, chance: random.Random) -> str:
    """A third of the lines is from the driver."""
    return kernel(number, chance) if chance.random() < 1 / 3 else application(number, chance)


def repeated(number: int, chance: random.Random) -> str:
    return "2026-11-21 10:00:00 WARNING worker: waiting for the next batch of the queue, nothing to do yet"


def objects(number: int, chance: random.Random) -> str:
    a, b, c = chance.choices(WORDS, k=3)
    fields = {"ts": f"2026-11-21T10:00:{number % 60:02d}Z", "level": "info", "logger": a, "msg": f"{b} {c} finished"}
    return json.dumps({**fields, "trace_id": f"{chance.getrandbits(128):032x}", "ms": round(chance.random() * 100, 3)})


def rows(row: Callable[[int, random.Random], str], message: str, size: int) -> Iterator[bytes]:
    """Some hundred KB at a time."""
    chance = random.Random(1)
    written = number = 0
    while written < size:
        lines = [row(number + place, chance) for place in range(5000)]
        if written <= size // 2 < written + sum(map(len, lines)):
            lines[2500] = message
        part = "".join(f"{line}\n" for line in lines).encode()
        written, number = written + len(part), number + len(lines)
        yield part


def measure(command: list[str], runs: int) -> tuple[float, float, bytes]:
    """Median seconds, peak memory in MiB, and what the command printed."""
    seconds, mebibytes, printed = [], 0.0, b""
    for _ in range(runs):
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            printed = process.stdout.read() if process.stdout else b""
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
        seconds.append(time.perf_counter() - start)
        mebibytes = max(mebibytes, usage.ru_maxrss / 1024)
    return statistics.median(seconds), mebibytes, printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mb", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        logs = {
            "training log": (training, MESSAGE),
            "kernel log": (kernel, XID),
            "application log": (application, MESSAGE),
            "mixed log": (mixed, MESSAGE),
            "one line": (repeated, MESSAGE),
            "JSON lines": (objects, MESSAGE),
        }
        print(f"{'log':20} {'MB/s':>6} {'MiB':>5} {'grep MB/s':>10} {'times grep':>11}")
        for name, (row, message) in logs.items():
            path = Path(folder) / "a.log"
            with path.open("wb") as file:
                file.writelines(rows(row, message, arguments.mb * 10**6))
            tell(name, path, arguments, ["grep", "-c", "-F", message[:40], str(path)])
        packed = Path(folder) / "training.log.gz"
        with gzip.open(packed, "wb", compresslevel=1) as unpacked:
            unpacked.writelines(rows(training, MESSAGE, arguments.mb * 10**6))
        tell("training log, .gz", packed, arguments, ["zgrep", "-c", "-F", MESSAGE[:40], str(packed)])


def tell(name: str, path: Path, arguments: argparse.Namespace, grep: list[str]) -> None:
    """MB/s are of the unpacked text."""
    seconds, mebibytes, printed = measure([sys.executable, "-m", "gpudoctor", "explain", str(path)], arguments.runs)
    of_grep, _, _ = measure(grep, arguments.runs)
    if b"DIAGNOSIS" not in printed:
        sys.exit(f"{name}: gpudoctor did not name the message")
    figures = f"{arguments.mb / seconds:6.0f} {mebibytes:5.0f} {arguments.mb / of_grep:10.0f} {seconds / of_grep:11.1f}"
    print(f"{name:20} {figures}", flush=True)


if __name__ == "__main__":
    main()
