"""gpudoctor in a process of its own, which costs hardly more than the command: forked from one that has run it before (warm.py).

The process is one's own child, as that of any Popen. What is about the start of a Python (its path, its variables, its
temporary folder, its own command line) needs a Python that starts: subprocess.Popen.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from waiting import HOPELESS_SECONDS

WARM = Path(__file__).with_name("warm.py")
COMMAND = [sys.executable, "-m", "gpudoctor"]
MAIN = "gpudoctor.__main__:main"
ON_A_TERMINAL = ["setsid", "--ctty"]
ON_THE_MACHINE = ["unshare", "--mount"]
PR_SET_CHILD_SUBREAPER = 36
START_NEW_SESSION = 17  # of the arguments of Popen._execute_child, counted from pass_fds

Done = subprocess.CompletedProcess[Any]


class Forked(subprocess.Popen[Any]):
    """A Popen that forks `python -m gpudoctor …`, also on a terminal (setsid --ctty) and on the lab's machine (Machine.argv).

    Any other program starts as ever. fresh: gpudoctor does too, since it is to see other variables of Python or the loader, not
    only what it starts. limits: see warm.py.
    """

    def __init__(
        self, args: Sequence[Any], call: str = MAIN, limits: Mapping[str, int] | None = None, fresh: bool = False, **options: Any
    ) -> None:
        self._call, self._limits, self._fresh = call, dict(limits or {}), fresh
        super().__init__(args, **options)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *others: Any) -> None:
        pass_fds, cwd, env, _, _, shell, *pipes = others[:12]
        job = None if self._fresh or executable or preexec_fn or pass_fds or shell else _job([str(word) for word in args])
        if not job:
            super()._execute_child(args, executable, preexec_fn, close_fds, *others)  # type: ignore[misc]
            return
        job["session"] = job["terminal"] or others[START_NEW_SESSION]
        job |= {"call": self._call, "limits": self._limits}
        job |= {"cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        try:
            self.pid = _start(job, [theirs if theirs >= 0 else number for number, theirs in enumerate((pipes[0], *pipes[3:6:2]))])
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(args: Sequence[Any], *, input: Any = None, timeout: float | None = HOPELESS_SECONDS, **options: Any) -> Done:
    """As subprocess.run."""
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    check = options.pop("check", False)
    with Forked(args, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _job(args: list[str]) -> dict[str, Any] | None:
    """None for what is not to be forked."""
    terminal = args[:2] == ON_A_TERMINAL
    args = args[2 * terminal :]
    enter = []
    if args[:2] == ON_THE_MACHINE:
        enter, args = [*args[2:6], "true"], args[6:]
    return {"args": args[3:], "terminal": terminal, "enter": enter} if args[:3] == COMMAND else None


def _start(job: dict[str, Any], descriptors: list[int]) -> int:
    asked = _warm()
    with _adopting():
        socket.send_fds(asked, [json.dumps(job).encode()], descriptors)
        return int(asked.recv(32))


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """What loses its parent meanwhile, of all that this process has started, becomes its own child."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@functools.cache
def _warm() -> socket.socket:
    """Asks warm.py, which ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        ours.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
    process = subprocess.Popen([sys.executable, str(WARM)], stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
    process.returncode = 0  # nobody waits for it
    theirs.close()
    assert ours.recv(32) == b"ready"
    return ours
