"""Carries conversations to many nodes with ClusterShell: ssh, Slurm's srun, or a local process for each node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task, task_self, task_terminate
from ClusterShell.Worker.Exec import ExecClient, ExecWorker
from ClusterShell.Worker.Ssh import SshClient, WorkerSsh

from gpudoctor.fleet import endings
from gpudoctor.fleet.conversation import Asked, Conversation
from gpudoctor.fleet.how import Counts, Done, How
from gpudoctor.fleet.model import State
from gpudoctor.model import Snapshot

ENGINES = ("ssh", "slurm", "local")
CONNECT_SECONDS = 15
LEAVE_SECONDS = 3.0  # for the shell to end after its last answer
MOST_LINE_BYTES = 4 << 20
MOST_WORDS = 8 << 10  # of error output that is kept, from each end


class _Bounded:
    """A client of ClusterShell that gives up on a line without an end; its handler has `flooded`."""

    def _handle_read(self, sname: str) -> None:
        super()._handle_read(sname)  # type: ignore[misc]
        stream = self.streams.get(sname)  # type: ignore[attr-defined]
        if stream is not None and len(stream.rbuf) > MOST_LINE_BYTES:
            self.worker.eh.flooded(self.worker)  # type: ignore[attr-defined]


class _SshClient(_Bounded, SshClient):  # type: ignore[misc]
    pass


class _ExecClient(_Bounded, ExecClient):  # type: ignore[misc]
    pass


class Ssh(WorkerSsh):  # type: ignore[misc]
    SHELL_CLASS = _SshClient


class Exec(ExecWorker):  # type: ignore[misc]
    SHELL_CLASS = _ExecClient


class _Node(EventHandler):  # type: ignore[misc]
    """One node while it is asked."""

    def __init__(self, name: str, asked: Asked, done: Done, counts: Counts, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._name = name
        self._talk = Conversation(asked)
        self._done = done
        self._counts = counts
        self._tell = tell
        self._said = bytearray()
        self._code: int | None = None
        self._has_closed_input = False

    @property
    def command(self) -> str:
        return self._talk.command

    def ev_start(self, worker: Any) -> None:
        self._counts.running += 1
        self._tell(self._counts.words())

    def ev_read(self, worker: Any, node: Any, sname: str, msg: bytes) -> None:
        if sname != worker.SNAME_STDOUT:
            self._said += msg[:MOST_WORDS] + b"\n"
            del self._said[MOST_WORDS:-MOST_WORDS]
            return
        if answer := self._talk.said(msg):
            worker.write(answer)
        if self._talk.has_flooded:
            self.flooded(worker)
        elif self._talk.is_done and not self._has_closed_input:
            self._has_closed_input = True
            worker.set_write_eof()  # the shell ends with its input
            worker.task.timer(LEAVE_SECONDS, _Abort(worker), autoclose=True)

    def flooded(self, worker: Any) -> None:
        self._talk.has_flooded = True
        worker.abort()

    def ev_hup(self, worker: Any, node: Any, rc: int) -> None:
        self._code = rc

    def ev_close(self, worker: Any, timedout: bool) -> None:
        self._counts.running -= 1
        self._counts.done += 1
        answers = self._talk.answers()
        was_aborted = self._code is None and not (timedout or self._talk.has_flooded or self._talk.is_done)
        if answers is None and was_aborted:  # by ^C
            return
        state, detail = self._state(answers, timedout)
        self._counts.silent += answers is None
        self._done(self._name, answers, state, detail)
        self._tell(self._counts.words())

    def _state(self, answers: Snapshot | None, timedout: bool) -> tuple[State, str]:
        said = bytes(self._said).decode("utf-8", "replace")
        if self._talk.is_done and answers is not None:
            return State.ANSWERED, ""
        if self._talk.has_flooded:
            return State.FLOODED, ""
        before = "it sent only other text" if self._talk.has_heard else "its shell did not start"
        doing = f"while {self._talk.doing}" if self._talk.doing else before
        if timedout:
            return (State.TIMED_OUT, doing) if answers is None else (State.PARTIAL, f"time limit reached {doing}")
        if answers is not None:
            return State.PARTIAL, endings.of(self._code, said)[1] or "the connection ended early"
        if self._talk.has_greeted:
            return State.FAILED, endings.of(self._code, said)[1] or "its Python did not answer"
        return endings.of(self._code, said)


class _Abort(EventHandler):  # type: ignore[misc]
    """Ends a worker that does not end."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = worker

    def ev_timer(self, timer: Any) -> None:
        self._worker.abort()


def ask(names: Sequence[str], asked: Asked, how: How, done: Done, tell: Callable[[str], None]) -> None:
    """Asks all nodes. done: called once for each node, with its answers, as soon as it has ended.

    ^C ends all that runs; nodes that have not ended by then are not reported.
    """
    task: Task = task_self()
    task.set_info("fanout", how.fanout)
    task.set_info("connect_timeout", CONNECT_SECONDS)
    task.set_info("ssh_options", how.options if how.engine == "ssh" else None)
    task.set_default("stdout_msgtree", False)
    task.set_default("stderr_msgtree", False)
    counts = Counts(len(names))
    for name in names:
        node = _Node(name, asked, done, counts, tell)
        task.schedule(_worker(name, node, how))
    try:
        task.run()
    except BaseException:  # ^C, or a signal that ends this program: what runs has to end, too
        with contextlib.suppress(KeyboardInterrupt):
            task.abort()
        raise
    finally:
        task_terminate()


def _worker(name: str, node: _Node, how: How) -> Any:
    given = {"handler": node, "timeout": how.seconds, "stderr": True}
    if how.engine == "ssh":
        return Ssh(name, command=node.command, **given)
    before = ""
    if how.engine == "slurm":
        before = f"srun --nodelist=%h --nodes=1 --ntasks=1 --quiet {how.options.replace('%', '%%')} ".replace("  ", " ")
    return Exec(name, command=f"exec {before}{node.command.replace('%', '%%')}", **given)
