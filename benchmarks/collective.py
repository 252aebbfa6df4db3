"""Whether `fleet collective` names a node that `tc` slows down: `python benchmarks/collective.py --python PATH [--nodes 4]`.

Each node is a network namespace with an sshd of its own, behind one switch; another one is slowed each time, and in the last runs
none. Needs root, and a Python with torch. With --engine slurm each is a slurmd in such a namespace; then run it behind
`unshare --mount`, because the names of the nodes are added to /etc/hosts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import slurm_lab
import ssh_lab


def slow(space: str, rate: str) -> None:
    """What leaves the node is limited to this rate."""
    words = ["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate]
    subprocess.run([*words, "burst", "64kb", "latency", "50ms"], check=True)


def as_before(space: str) -> None:
    subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "del", "dev", "eth0", "root"], check=True)


def run(nodes: list[str], given: argparse.Namespace, options: str, environment: dict[str, str]) -> tuple[dict[str, Any], float]:
    command = [sys.executable, "-m", "gpudoctor", "fleet", "collective", "-w", ",".join(nodes), "--python", given.python]
    command += ["--engine", given.engine, "--engine-options", options, "--backend", "gloo", "--ranks", "1", "--format", "json"]
    start = time.monotonic()
    done = subprocess.run([*command, *given.more], capture_output=True, text=True, check=False, env=environment)
    try:
        return json.loads(done.stdout), time.monotonic() - start
    except ValueError:
        raise SystemExit(done.stderr or done.stdout) from None


def left(spaces: list[str]) -> int:
    """Processes in the namespaces beside their sshd or slurmd."""
    found = 0
    for space in spaces:
        pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=True).stdout.split()
        for pid in pids:
            words = Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b""
            found += not any(daemon in words for daemon in (b"sshd", b"slurmd")) and bool(words)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--python", required=True)
    options.add_argument("--engine", choices=["ssh", "slurm"], default="ssh")
    options.add_argument("--nodes", type=int, default=4)
    options.add_argument("--times", type=int, default=10)
    options.add_argument("--healthy", type=int, default=1, help="further runs, in which none is slow")
    options.add_argument("--rate", default="200mbit")
    options.add_argument("more", nargs="*", help="further options of fleet collective, behind --")
    given = options.parse_args()
    if why := (ssh_lab if given.engine == "ssh" else slurm_lab).is_missing():
        raise SystemExit(why)
    names = [f"gpu{number:02}" for number in range(1, given.nodes + 1)]
    engine, prefix = (over_ssh, "gdc") if given.engine == "ssh" else (over_slurm, "gds")
    network = ssh_lab.NETWORK if given.engine == "ssh" else "10.77.86"
    with tempfile.TemporaryDirectory() as folder, ssh_lab.namespaces(names, prefix, network) as addresses:
        spaces = {name: f"{prefix}-{name}" for name in names}
        with engine(Path(folder), addresses, spaces) as (nodes, options, environment):
            for seed in range(given.times + given.healthy):
                guilty = random.Random(seed).choice(names) if seed < given.times else ""
                if guilty:
                    slow(spaces[guilty], given.rate)
                told, seconds = run([nodes[name] for name in names], given, options, environment)
                if guilty:
                    as_before(spaces[guilty])
                tell(told, nodes.get(guilty, ""))
                print(f"  {seconds:.0f} s, {left(list(spaces.values()))} processes left", flush=True)


@contextmanager
def over_ssh(folder: Path, addresses: dict[str, str], spaces: dict[str, str]) -> Iterator[Any]:
    """Yields what each node is called, and options and environment of the engine."""
    of_addresses = {addresses[name]: spaces[name] for name in spaces}
    with ssh_lab.nodes(folder, {each: each for each in of_addresses}, of_addresses, "SetEnv GLOO_SOCKET_IFNAME=eth0\n") as lab:
        yield addresses, lab.options, {**os.environ}


@contextmanager
def over_slurm(folder: Path, addresses: dict[str, str], spaces: dict[str, str]) -> Iterator[Any]:
    hosts = folder / "hosts"
    hosts.write_text(Path("/etc/hosts").read_text() + "".join(f"{address} {name}\n" for name, address in addresses.items()))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    try:
        at = {name: (addresses[name], spaces[name]) for name in spaces}
        host = addresses[next(iter(addresses))].rpartition(".")[0] + ".1"
        with slurm_lab.cluster(folder, len(spaces), "", host, at) as cluster:
            assert cluster.names == list(spaces)
            yield {name: name for name in spaces}, "--overlap", {**cluster.environment, "GLOO_SOCKET_IFNAME": "eth0"}
    finally:
        subprocess.run(["umount", "/etc/hosts"], check=True)


def tell(told: dict[str, Any], guilty: str) -> None:
    def reached(groups: list[dict[str, Any]]) -> str:
        return "; ".join(f"{','.join(each['nodes'])}: {each['gb_per_s'] or each['words']}" for each in groups)

    for done in told["rounds"]:
        print(" ", reached(done))
    for again in told["repeated"]:
        print(f"  again, {again['times']} times: {reached(again['suspects'])}; rest: {reached(again['rest'])}")
    right = list(told["named"]) == [guilty] if guilty else told["status"] == "healthy"
    doubts = {name: [each["nodes"] for each in told[name]] for name in ("unsure", "noise")}
    most = math.ceil(math.log2(len(told["nodes"]))) + 2
    print(
        f"slow: {guilty or 'none'}; {told['status']}, named {list(told['named'])}, likely {told['likely']}, {doubts}: "
        f"{'right' if right else 'WRONG'}, {len(told['rounds']) + bool(told['repeated'])} of {most} rounds"
    )


if __name__ == "__main__":
    main()
