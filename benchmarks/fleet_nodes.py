"""How the time of `fleet check` grows with the nodes: `python benchmarks/fleet_nodes.py [--nodes 64] [--wait S] [--replay]`.

Each node is an sshd of its own on an address of this machine, with a host key of its own, so they share its processors: what
the nodes compute, which those of a cluster do at the same time, is counted apart from what the caller and its ssh compute.
--wait: each node waits so many seconds before it answers, as if its questions took that time. --replay: nodes answer what one
of them answered before, which hardly takes any processor. Few and many run in turn.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import ssh_lab

WAITS = 'ForceCommand sleep SECONDS; eval "exec $SSH_ORIGINAL_COMMAND"\n'
RECORDS = 'ForceCommand eval "$SSH_ORIGINAL_COMMAND" | tee FILE\n'
REPLAYS = (
    "ForceCommand sleep SECONDS; m=$(printf %s \"$SSH_ORIGINAL_COMMAND\" | grep -oE '[0-9a-f]{16}' | tail -n 1); "
    'sed "s/MARKER/$m/g" FILE; exec cat >/dev/null\n'
)


def run(lab: ssh_lab.Lab, count: int, fanout: int) -> tuple[float, float, float, dict[str, int]]:
    """Wall seconds, CPU seconds of the caller with its ssh, CPU seconds of the nodes, and how many nodes were in which state."""
    command = [sys.executable, "-m", "gpudoctor", "fleet", "check", "-w", f"n[1-{count}]", "--fanout", str(fanout)]
    command += ["--engine-options", lab.options, "--timeout", "300", "--format", "json"]
    of_nodes, before, start = lab.cpu_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    states: dict[str, int] = {}
    for node in json.loads(done.stdout)["nodes"]:
        states[node["state"]] = states.get(node["state"], 0) + 1
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, lab.cpu_seconds() - of_nodes, states


def recorded(folder: Path) -> str:
    """The line of sshd_config with which a node answers again what one answered."""
    file, place = folder / "answers", folder / "recorded"
    place.mkdir()
    with ssh_lab.nodes(place, {"n1": "127.0.1.1"}, more=RECORDS.replace("FILE", str(file))) as lab:
        run(lab, 1, 1)
    marker = re.search(rb'([0-9a-f]{16})\{"python"', file.read_bytes())
    assert marker, "the node did not answer"
    return REPLAYS.replace("MARKER", marker[1].decode()).replace("FILE", str(file))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--nodes", type=int, default=64)
    options.add_argument("--few", type=int, default=8)
    options.add_argument("--fanout", type=int, default=64)
    options.add_argument("--wait", type=float, default=0)
    options.add_argument("--replay", action="store_true")
    options.add_argument("--times", type=int, default=3)
    given = options.parse_args()
    if why := ssh_lab.is_missing():
        raise SystemExit(why)
    found: dict[int, list[float]] = {given.few: [], given.nodes: []}
    with tempfile.TemporaryDirectory() as folder:
        addresses = {f"n{number}": f"127.0.1.{number}" for number in range(1, given.nodes + 1)}
        line = recorded(Path(folder)) if given.replay else WAITS if given.wait else ""
        place = Path(folder) / "nodes"
        place.mkdir()
        with ssh_lab.nodes(place, addresses, more=line.replace("SECONDS", f"{given.wait:g}")) as lab:
            for _ in range(given.times):
                for count, times in found.items():
                    seconds, cpu, of_nodes, states = run(lab, count, given.fanout)
                    times.append(seconds)
                    print(
                        f"{count} nodes: {seconds:.1f} s; CPU of each: {cpu / count:.2f} s here, {of_nodes / count:.2f} s there; "
                        f"{states}",
                        flush=True,
                    )
    few, many = (statistics.median(times) for times in found.values())
    print(f"{given.nodes} nodes take {many / few:.2f} × the time of {given.few} (fan-out {given.fanout}, wait {given.wait:g} s)")


if __name__ == "__main__":
    main()
