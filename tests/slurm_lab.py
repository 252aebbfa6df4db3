"""A Slurm cluster of several nodes on this machine, from the installed packages: its own munge, controller and daemons."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
LONGEST_SECONDS = 120
CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={ctld}
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=0
SlurmdParameters=config_overrides
SelectType=select/cons_tres
{more}
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def is_missing() -> str:
    """Why there can be no cluster here; "" if there can."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if absent:
        return f"not installed: {', '.join(absent)} (apt install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "Slurm's daemons need root"


def wait(until: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    while not until():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Cluster:
    """names: of its nodes. environment: with which srun and scontrol find it."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.names = [f"gpu{number:02}" for number in range(1, count + 1)]
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=LONGEST_SECONDS)

    def node(self, name: str) -> dict[str, str]:
        """What scontrol says of a node."""
        found: dict[str, str] = {}
        for line in self.run("scontrol", "show", "node", name).stdout.splitlines():
            if line.strip().startswith("Reason="):
                found["Reason"] = line.strip().removeprefix("Reason=")
            else:
                found |= dict(word.split("=", 1) for word in line.split() if "=" in word)
        return found


@contextmanager
def cluster(
    folder: Path, count: int, more: str, address: str = "127.0.0.1", spaces: Mapping[str, tuple[str, str]] | None = None
) -> Iterator[Cluster]:
    """more: further lines of slurm.conf. address: of the controller. spaces: name of a node -> its address and the network
    namespace of its slurmd."""
    made = Cluster(folder, count)
    host = socket.gethostname().partition(".")[0]
    at = {name: (spaces or {}).get(name, (address, "")) for name in made.names}
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr={at[name][0]} Port={free_port()} CPUs=1 State=UNKNOWN"
        for name in made.names
    )
    text = CONFIGURATION.format(host=host, address=address, folder=folder, ctld=free_port(), more=more, nodes=nodes)
    (folder / "slurm.conf").write_text(text)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    running: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        with (folder / "started.log").open("ab") as log:
            running.append(subprocess.Popen(words, env=made.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    try:
        socket_path = folder / "munge.socket"
        files = [f"--{name}={folder / name}" for name in ("key-file", "pid-file", "log-file", "seed-file")]
        files[0] = f"--key-file={key}"
        start("munged", "--foreground", "--force", f"--socket={socket_path}", *files)
        wait(socket_path.exists, "munged does not start")
        start("slurmctld", "-D")
        wait(lambda: "is UP" in made.run("scontrol", "ping").stdout, "slurmctld does not start")
        for name in made.names:
            (folder / f"spool-{name}").mkdir()
            inside = [f"--net=/run/netns/{at[name][1]}"] if at[name][1] else []  # ip netns exec would hide its cgroups
            start(*(["nsenter", *inside] if inside else []), "slurmd", "-D", "-N", name)
        wait(lambda: all(made.node(name).get("State") == "IDLE" for name in made.names), "the nodes do not become idle")
        yield made
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
