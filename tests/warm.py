"""`python warm.py` answers on a socket, its standard input: each message is a program to start, forked from it. See forked.py.

A message is a job as JSON, with what are to be the descriptors 0, 1 and 2 of the process. The job: `call` (module:function),
`args` (sys.argv[1:]), `cwd`, `env` (all variables), whether it gets a `session` of its own and its input as the `terminal` of it,
what it is to `enter` first (a command that changes the mounts of its namespace), and `limits`. The answer is the number of the
process, which is by then a child of whoever asked.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import every_command

MACHINE = str(Path(__file__).parent / "machines" / "no-gpu" / "snapshot.json")
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 0x40000
LARGEST = 1 << 20


def warm_up() -> None:
    """Imports and compiles what the commands need, by running them. What they leave is of this process alone."""
    folder = tempfile.gettempdir()
    os.environ |= {"HOME": folder, "XDG_STATE_HOME": folder, "PATH": "/nonexistent", "HTTPS_PROXY": "http://127.0.0.1:1"}
    for args in COMMANDS:
        found = every_command.came_of(args)
        assert not found["failure"], found
    for name in NAMES:
        importlib.import_module(name)
    gc.freeze()


COMMANDS: tuple[list[str], ...] = (
    ["check", "--replay", MACHINE, "-v"],
    ["check", "--replay", MACHINE, "--format", "json"],
    ["explain", MACHINE],
    ["explain", "--", __file__],
    ["report", MACHINE],
    ["fix", "--replay", MACHINE],
    ["diff", MACHINE, MACHINE],
    ["images", "lint", __file__],
)
NAMES = ("gpudoctor.cli.run", "gpudoctor.cli.images", "gpudoctor.interpreter", "gpudoctor.collect", "gpudoctor.measure")


def serve(asked: socket.socket) -> None:
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, LARGEST, 3)
        if not message:
            return
        asked.send(b"%d" % _started(json.loads(message), descriptors))
        for descriptor in descriptors:
            os.close(descriptor)


def _started(job: dict[str, Any], descriptors: Sequence[int]) -> int:
    """Who asked adopts what has lost its parent: so the process is that of one that ends at once."""
    adopted, adopt = os.pipe()
    number, tell = os.pipe()
    parent = os.fork()
    if not parent:
        child = os.fork()
        if child:
            os.write(tell, b"%d" % child)
            os._exit(0)
        os.close(adopt)
        os.read(adopted, 1)
        live(job, descriptors)
    os.waitpid(parent, 0)
    found = int(os.read(number, 32))
    for descriptor in (adopted, adopt, number, tell):
        os.close(descriptor)
    return found


def live(job: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    code: Any = 70
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, 256)
        sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
        if job["session"]:
            os.setsid()
        if job["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.environ.clear()
        os.environ.update(job["env"])
        tempfile.tempdir = None  # which is chosen once, by the environment
        os.chdir(job["cwd"])
        if job["enter"]:
            _enter(job["enter"])
            os.chdir(job["cwd"])
        limits = job["limits"]
        signal.alarm(limits.get("seconds", 0))
        for limit, name in ((resource.RLIMIT_CPU, "cpu_seconds"), (resource.RLIMIT_AS, "address_bytes")):
            if name in limits:
                resource.setrlimit(limit, (limits[name], limits[name]))
        module, _, function = job["call"].partition(":")
        sys.argv = [module, *job["args"]]
        getattr(importlib.import_module(module), function)()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            threading._shutdown()  # type: ignore[attr-defined]  # as the end of Python does it
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _enter(command: Sequence[str]) -> None:
    """As `unshare --mount COMMAND`, but for this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "a mount namespace of its own")
    subprocess.run(command, check=True)


if __name__ == "__main__":
    channel = socket.socket(fileno=0)
    warm_up()
    channel.send(b"ready")
    serve(channel)
