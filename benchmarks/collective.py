"""Whether `fleet collective` names a node that `tc` slows down: `python benchmarks/collective.py --python PATH [--nodes 4]`.

Each node is a network namespace with an sshd of its own, behind one switch; another one is slowed each time, and in the last run
none. Needs root, and a Python with torch.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import ssh_lab


def slow(space: str, rate: str) -> None:
    """What leaves the node is limited to this rate."""
    words = ["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate]
    subprocess.run([*words, "burst", "64kb", "latency", "50ms"], check=True)


def as_before(space: str) -> None:
    subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "del", "dev", "eth0", "root"], check=True)


def run(lab: ssh_lab.Lab, nodes: list[str], python: str, more: list[str]) -> tuple[dict[str, Any], float]:
    command = [sys.executable, "-m", "gpudoctor", "fleet", "collective", "-w", ",".join(nodes), "--python", python]
    command += ["--engine-options", lab.options, "--backend", "gloo", "--ranks", "1", "--format", "json", *more]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout), time.monotonic() - start
    except ValueError:
        raise SystemExit(done.stderr or done.stdout) from None


def left(spaces: list[str]) -> int:
    """Processes in the namespaces beside their sshd."""
    found = 0
    for space in spaces:
        pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=True).stdout.split()
        for pid in pids:
            words = Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b""
            found += b"sshd" not in words and bool(words)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--python", required=True)
    options.add_argument("--nodes", type=int, default=4)
    options.add_argument("--times", type=int, default=10)
    options.add_argument("--rate", default="200mbit")
    options.add_argument("more", nargs="*", help="further options of fleet collective, behind --")
    given = options.parse_args()
    if why := ssh_lab.is_missing():
        raise SystemExit(why)
    names = [f"c{number}" for number in range(1, given.nodes + 1)]
    with tempfile.TemporaryDirectory() as folder, ssh_lab.namespaces(names, "gdc") as found:
        addresses = {address: address for address in found.values()}
        spaces = {found[name]: f"gdc-{name}" for name in names}
        with ssh_lab.nodes(Path(folder), addresses, spaces, "SetEnv GLOO_SOCKET_IFNAME=eth0\n") as lab:
            for seed in range(given.times + 1):
                guilty = random.Random(seed).choice(list(addresses)) if seed < given.times else ""
                if guilty:
                    slow(spaces[guilty], given.rate)
                told, seconds = run(lab, list(addresses), given.python, given.more)
                if guilty:
                    as_before(spaces[guilty])
                repeats = bool(told["repeated"])
                rounds = len(told["rounds"]) + repeats
                right = list(told["named"]) == [guilty] if guilty else told["status"] == "healthy"
                most = math.ceil(math.log2(given.nodes)) + 2
                for done in told["rounds"]:
                    print(
                        "  " + "; ".join(f"{','.join(each['nodes'])}: {each['gb_per_s'] or each['words']}" for each in done),
                        flush=True,
                    )
                print(
                    f"slow: {guilty or 'none'}; {told['status']}, named {list(told['named'])}, likely {told['likely']}, unsure "
                    f"{[each['nodes'] for each in told['unsure']]}: {'right' if right else 'WRONG'}, {rounds} of {most} rounds, "
                    f"{seconds:.0f} s, {left(list(spaces.values()))} processes left",
                    flush=True,
                )


if __name__ == "__main__":
    main()
