"""Runs collectives over groups of nodes with torchrun in the users' Python, by ssh, Slurm or local processes (ClusterShell)."""

from __future__ import annotations

import json
import random
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task, task_self, task_terminate
from ClusterShell.Worker.Exec import ExecWorker
from ClusterShell.Worker.Ssh import WorkerSsh

from gpudoctor.fleet.halving import Found, Group, Outcome, find
from gpudoctor.worker import collective_node, collective_rank
from gpudoctor.worker.measuring import nccl_log

ENGINES = ("ssh", "slurm", "local")
CONNECT_SECONDS = 15
OUTER_SECONDS = 10.0  # of a node, beyond the time limit of its session
GRACE_SECONDS = 3.0  # for the others of a group after one has failed
JUDGED = "all-reduce"
PORTS = (20000, 32000)  # below those that kernels give to clients
# Its first line is the program, its second the job.
BOOTSTRAP = """\
import os,json
b=b''
while not b.endswith(b'\\n'):
 d=os.read(0,1)
 if not d: raise SystemExit(1)
 b+=d
exec(compile(json.loads(b),'collective','exec'),{'__name__':'__main__'})"""


@dataclass(frozen=True)
class How:
    """python: of the users, with torch. ranks: of a node, "auto" means one for each GPU. seconds: for one round."""

    engine: str = "ssh"
    python: str = "python3"
    ranks: str = "auto"
    backend: str = ""
    sizes: tuple[int, ...] = (1 << 20, 64 << 20)
    seconds: float = 120
    options: str = ""


@dataclass
class Said:
    """What one node reported. code: None if its session did not end."""

    hello: bool = False
    ranks: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None
    words: str = ""
    nccl: list[str] = field(default_factory=list)
    adapters: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Round:
    """group -> node -> what it said."""

    groups: dict[Group, dict[str, Said]]


@dataclass
class Result:
    """silent: node -> why no session could start there."""

    nodes: Group
    silent: dict[str, str] = field(default_factory=dict)
    found: Found | None = None
    rounds: list[Round] = field(default_factory=list)

    @property
    def figures(self) -> list[dict[str, Any]]:
        """Of the first round, with all nodes."""
        if not self.rounds:
            return []
        (whole,) = self.rounds[0].groups.values()
        return [row for said in whole.values() for row in said.ranks if "gb_per_s" in row]

    @property
    def said(self) -> Mapping[str, Said]:
        return next(iter(self.rounds[0].groups.values())) if self.rounds else {}


def collective(nodes: Group, how: How, expected: float, tell: Callable[[str], None]) -> Result:
    """First each node alone, whether it can start torch; then all of them, then halves."""
    result = Result(nodes)
    tell(f"Starting torch on {len(nodes)} nodes")
    ready: list[str] = []
    for (name,), said in run([(node,) for node in nodes], how, is_preflight=True).groups.items():
        if said[name].code == 0:
            ready.append(name)
        else:
            result.silent[name] = said[name].words or ("no answer" if said[name].hello else "cannot be reached")
    if len(ready) < 2:
        return result

    def probe(groups: Sequence[Group]) -> list[Outcome]:
        tell(f"Round {len(result.rounds) + 1}: {', '.join(f'{len(group)} nodes' for group in groups)}")
        done = run(groups, how)
        result.rounds.append(done)
        return [outcome(done.groups[group], 3 * len(how.sizes)) for group in groups]

    result.found = find(ready, probe, expected)
    return result


def outcome(said: Mapping[str, Said], complete: int) -> Outcome:
    """The bandwidth of the largest all-reduce. A wrong result is a failure; a session that only ends late is none.

    complete: the number of figures that a session reports.
    """
    rows = [row for each in said.values() for row in each.ranks if "gb_per_s" in row]
    wrong = next((row["what"] for row in rows if row["wrong"]), "")
    if wrong:
        return Outcome(None, f"wrong result of {wrong}")
    failed = [each.words for each in said.values() if each.code != 0]
    if failed and len(rows) < complete:
        telling = [words for words in failed if words and "time limit" not in words]
        return Outcome(None, next(iter([*telling, *failed])) or "ended early")
    judged = [row for row in rows if row["what"] == JUDGED]
    largest = max((row["bytes"] for row in judged), default=0)
    return Outcome(min(row["gb_per_s"] for row in judged if row["bytes"] == largest)) if judged else Outcome(None, "no result")


class _Node(EventHandler):  # type: ignore[misc]
    def __init__(self, name: str, marker: str, said: Said, over: Callable[[str], None]) -> None:
        super().__init__()
        self._name, self._marker, self._said, self._over = name, marker.encode(), said, over

    def ev_read(self, worker: Any, node: Any, sname: str, msg: bytes) -> None:
        if sname != worker.SNAME_STDOUT:
            if not self._said.hello:
                self._said.words = msg.decode("utf-8", "replace").strip()[:300] or self._said.words
            return
        _, marked, told = msg.partition(self._marker)
        if not marked:
            return
        try:
            self._keep(json.loads(told))
        except (ValueError, TypeError, AttributeError):
            return

    def _keep(self, told: dict[str, Any]) -> None:
        if "hello" in told:
            self._said.hello, self._said.words = True, ""
        elif "rank" in told and isinstance(told["rank"], dict) and len(self._said.ranks) < 10_000:
            self._said.ranks.append(told["rank"])
        elif "done" in told:
            self._said.code, self._said.words = int(told["done"]), str(told["words"])
            self._said.nccl, self._said.adapters = list(told["nccl"]), list(told["adapters"])

    def ev_close(self, worker: Any, timedout: bool) -> None:
        if self._said.code is None and not self._said.words:
            self._said.words = "the time limit passed" if timedout else "the connection ended early"
        self._over(self._name)


class _Abort(EventHandler):  # type: ignore[misc]
    def __init__(self, workers: Sequence[Any]) -> None:
        super().__init__()
        self._workers = workers

    def ev_timer(self, timer: Any) -> None:
        for worker in self._workers:
            worker.abort()


def run(groups: Sequence[Group], how: How, is_preflight: bool = False) -> Round:
    """Runs a session in each group, all at the same time. If a node of a group fails, the group ends soon."""
    task: Task = task_self()
    task.set_info("fanout", sum(map(len, groups)))
    task.set_info("connect_timeout", CONNECT_SECONDS)
    task.set_info("ssh_options", how.options if how.engine == "ssh" else None)
    task.set_default("stdout_msgtree", False)
    task.set_default("stderr_msgtree", False)
    done = Round({group: {node: Said() for node in group} for group in groups})
    for group, job in zip(groups, _jobs(groups, how, is_preflight), strict=True):
        _schedule(task, group, job, how, done.groups[group])
    try:
        task.run()
    except BaseException:
        task.abort()
        raise
    finally:
        task_terminate()
    return done


def _jobs(groups: Sequence[Group], how: How, is_preflight: bool) -> list[dict[str, Any]]:
    ports = random.sample(range(*PORTS), len(groups))
    work = {"backend": how.backend, "bytes": how.sizes, "seconds": how.seconds, "each_seconds": how.seconds / 60 / len(how.sizes)}
    rank = Path(collective_rank.__file__).read_text(encoding="utf-8")
    return [
        {
            "id": secrets.token_hex(8),
            "marker": secrets.token_hex(8),
            "nodes": 0 if is_preflight else len(group),
            "ranks": how.ranks,
            "endpoint": f"{'127.0.0.1' if how.engine == 'local' else group[0]}:{port}",
            "seconds": how.seconds,
            "rank": rank,
            "work": work,
            "environment": {"GLOO_SOCKET_IFNAME": "lo"} if how.engine == "local" else {},
        }
        for group, port in zip(groups, ports, strict=True)
    ]


def _schedule(task: Task, group: Group, job: dict[str, Any], how: How, said: Mapping[str, Said]) -> None:
    workers: list[Any] = []

    def over(name: str) -> None:
        if said[name].code != 0 and len(group) > 1:
            task.timer(GRACE_SECONDS, _Abort(workers), autoclose=True)

    program = json.dumps(Path(collective_node.__file__).read_text(encoding="utf-8"))
    for number, node in enumerate(group):
        worker = _worker(node, _Node(node, job["marker"], said[node], over), how)
        own = {**job, "is_host": int(number == 0), "address": "127.0.0.1" if how.engine == "local" else node}
        worker.write(f"{program}\n{json.dumps(own)}\n".encode())
        workers.append(worker)
        task.schedule(worker)


def _worker(node: str, handler: _Node, how: How) -> Any:
    given = {"handler": handler, "timeout": how.seconds + OUTER_SECONDS + CONNECT_SECONDS, "stderr": True}
    command = f"GPUDOCTOR_NODE={shlex.quote(node)} exec {shlex.quote(how.python)} -c {shlex.quote(BOOTSTRAP)}"
    if how.engine == "ssh":
        return WorkerSsh(node, command=f"exec sh -c {shlex.quote(command)}", **given)
    before = ""
    if how.engine == "slurm":
        before = f"srun --nodelist=%h --nodes=1 --ntasks=1 --quiet {how.options.replace('%', '%%')} "
    return ExecWorker(node, command=f"exec {before}sh -c {shlex.quote(command).replace('%', '%%')}", **given)


def transports(said: Mapping[str, Said]) -> dict[str, Any]:
    """What NCCL reported of its connections, on all nodes together."""
    lines = [line for each in said.values() for line in each.nccl]
    found = nccl_log.parsed("\n".join(lines))
    if any("MNNVL 1" in line for line in lines):
        found["mnnvl"] = True
    return found


def doubts(said: Mapping[str, Said]) -> list[str]:
    """What does not fit: the transport and the adapters that are there, and adapters of one node and those of the others."""
    found = []
    net = {name for name in transports(said).get("connections", {}) if name.startswith("NET/")}
    ports = {node: _ports(each) for node, each in said.items()}
    active = [node for node, known in ports.items() if any(known.values())]
    if len(active) == len(said) and any("Socket" in name for name in net):
        found.append(
            "NCCL uses TCP (NET/Socket), although every node has an active InfiniBand or RoCE port: "
            "gpudoctor explain nccl-no-ib-falls-back-socket"
        )
    for name in sorted({name for known in ports.values() for name in known}):
        down = [node for node, known in ports.items() if not known.get(name)]
        if down and len(down) * 2 < len(ports):
            found.append(f"{', '.join(down)}: {name} is not active, as it is on the other nodes")
    return found


def _ports(said: Said) -> dict[str, bool]:
    return {str(each["name"]): bool(each["active"]) for each in said.adapters if each.get("kind") != "net"}
