"""`python warm.py` runs what it is asked to on standard input, each in a process forked from this one, and says its exit code.

A line is a job as JSON: `call` (module:function), `args` (sys.argv[1:]), `out` and `err` (files), `cwd`, `env` (all variables, or
null for those that this process has), and the limits `cpu_seconds`, `address_bytes` and `seconds`. A negative exit code is that
of a signal.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

import every_command

MACHINES = Path(__file__).parent / "machines"


def warm_up() -> None:
    """Imports and compiles what the commands need, by running them."""
    for file in (MACHINES / "no-gpu" / "snapshot.json", Path(__file__)):
        every_command.of_file(str(file))
    gc.freeze()


def live(job: dict[str, Any]) -> NoReturn:
    code: Any = 70
    try:
        for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, job["out"], WRITE), (2, job["err"], WRITE)):
            os.dup2(os.open(name, flags, 0o600), number)
        os.chdir(job["cwd"])
        if job["env"] is not None:
            os.environ.clear()
            os.environ.update(job["env"])
            tempfile.tempdir = None  # which is chosen once, by the environment
        signal.alarm(job["seconds"])
        for limit, most in ((resource.RLIMIT_CPU, job["cpu_seconds"]), (resource.RLIMIT_AS, job["address_bytes"])):
            resource.setrlimit(limit, (most, most))
        module, _, function = job["call"].partition(":")
        sys.argv = [module, *job["args"]]
        getattr(importlib.import_module(module), function)()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


WRITE = os.O_WRONLY | os.O_CREAT

if __name__ == "__main__":
    warm_up()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            live(json.loads(line))
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()
