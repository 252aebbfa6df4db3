"""Runs collectives over groups of nodes with torchrun in the users' Python, by ssh, Slurm or local processes (ClusterShell)."""

from __future__ import annotations

import contextlib
import json
import random
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task, task_self, task_terminate

from gpudoctor.fleet.accusing import Found
from gpudoctor.fleet.confirming import Group, Outcome
from gpudoctor.fleet.engine import Exec, Ssh
from gpudoctor.fleet.halving import find
from gpudoctor.fleet.said import MOST_WORDS, Said, Told, outcome, passes
from gpudoctor.plain import plain
from gpudoctor.worker import collective_node, collective_rank

MOST_BYTES = 32 << 20  # that one node may send
FLOODED = -1
ENGINES = ("ssh", "slurm", "local")
CONNECT_SECONDS = 15
OUTER_SECONDS = 10.0  # of a node, beyond the time limit of its session
GRACE_SECONDS = 3.0  # for the others of a group after one has failed
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

    result.found = find(ready, _Probe(result, how, tell), expected)
    return result


@dataclass
class _Probe:
    result: Result
    how: How
    tell: Callable[[str], None]

    def __call__(self, groups: Sequence[Group]) -> list[Outcome]:
        self.tell(f"Round {len(self.result.rounds) + 1}: {', '.join(f'{len(group)} nodes' for group in groups)}")
        done = run(groups, self.how)
        self.result.rounds.append(done)
        return [outcome(done.groups[group], 3 * len(self.how.sizes)) for group in groups]

    def in_turn(self, steps: Sequence[Sequence[Group]]) -> list[dict[Group, float]]:
        nodes = tuple(dict.fromkeys(node for step in steps for group in step for node in group))
        groups = list(dict.fromkeys(group for step in steps for group in step))
        self.tell(f"Measuring again, in turn: {len(nodes)} nodes in {len(groups)} groups")
        numbered = [[groups.index(group) for group in step] for step in steps]
        done = run([nodes], self.how, {"groups": groups, "steps": numbered})
        return passes(done.groups[nodes], groups)


class _Node(EventHandler):  # type: ignore[misc]
    def __init__(self, name: str, marker: str, said: Said, over: Callable[[str], None]) -> None:
        super().__init__()
        self._name, self._marker, self._said, self._over = name, marker.encode(), said, over
        self._bytes = 0

    def ev_read(self, worker: Any, node: Any, sname: str, msg: bytes) -> None:
        self._bytes += len(msg)
        if self._bytes > MOST_BYTES:
            self.flooded(worker)
            return
        if sname != worker.SNAME_STDOUT:
            if not self._said.hello:
                self._said.words = plain(msg.decode("utf-8", "replace").strip())[:MOST_WORDS] or self._said.words
            return
        _, marked, told = msg.partition(self._marker)
        if not marked:
            return
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # of another version, or hostile
            self._said.keep(msgspec.json.decode(told, type=Told))

    def flooded(self, worker: Any) -> None:
        self._said.code, self._said.words = FLOODED, "its output is too long"
        worker.abort()

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


def run(groups: Sequence[Group], how: How, turns: Mapping[str, Any] | None = None, is_preflight: bool = False) -> Round:
    """Runs a session in each group, all at the same time. If a node of a group fails, the group ends soon.

    turns: smaller groups that are measured in turn within the session, instead of every collective.
    """
    task: Task = task_self()
    task.set_info("fanout", sum(map(len, groups)))
    task.set_info("connect_timeout", CONNECT_SECONDS)
    task.set_info("ssh_options", how.options if how.engine == "ssh" else None)
    task.set_default("stdout_msgtree", False)
    task.set_default("stderr_msgtree", False)
    done = Round({group: {node: Said() for node in group} for group in groups})
    for group, job in zip(groups, _jobs(groups, how, turns, is_preflight), strict=True):
        _schedule(task, group, job, how, done.groups[group])
    try:
        task.run()
    except BaseException:
        task.abort()
        raise
    finally:
        task_terminate()
    return done


def _jobs(groups: Sequence[Group], how: How, turns: Mapping[str, Any] | None, is_preflight: bool) -> list[dict[str, Any]]:
    ports = random.sample(range(*PORTS), len(groups))
    work = {"backend": how.backend, "bytes": how.sizes, "seconds": how.seconds, "each_seconds": how.seconds / 60 / len(how.sizes)}
    work |= {"turns": turns} if turns else {}
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
        return Ssh(node, command=f"exec sh -c {shlex.quote(command)}", **given)
    before = ""
    if how.engine == "slurm":
        before = f"srun --nodelist=%h --nodes=1 --ntasks=1 --quiet {how.options.replace('%', '%%')} "
    return Exec(node, command=f"exec {before}sh -c {shlex.quote(command).replace('%', '%%')}", **given)
