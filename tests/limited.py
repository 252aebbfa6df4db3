"""gpudoctor in a process of its own, which costs hardly more than the command.

The process is forked from one that has imported and judged before (warm.py): else every start would cost more than the command.
What is about the start of a Python (its path, its temporary folder, a terminal) needs `python -m gpudoctor`.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from waiting import HOPELESS_SECONDS

WARM = Path(__file__).with_name("warm.py")
MAIN = "gpudoctor.__main__:main"


def limited(
    args: list[str], cpu_seconds: int, address_bytes: int = 1 << 30, call: str = MAIN
) -> subprocess.CompletedProcess[str]:
    """Killed if it takes more CPU time, or waits for what never comes; MemoryError in it if it takes more memory.

    call: what is run in the process, module:function. A slow machine changes neither limit.
    """
    return _forked(call, args, cwd="/", env=None, cpu_seconds=cpu_seconds, address_bytes=address_bytes)


def gpudoctor(*args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As `python -m gpudoctor` here, or in `cwd`, with this environment, or `env`."""
    no_limits = {"cpu_seconds": resource.RLIM_INFINITY, "address_bytes": resource.RLIM_INFINITY}
    return _forked(MAIN, args, cwd=str(cwd or Path.cwd()), env=dict(os.environ if env is None else env), **no_limits)


def _forked(call: str, args: Any, **given: Any) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        job = {"call": call, "args": args, "out": str(out), "err": str(err), "seconds": int(HOPELESS_SECONDS)}
        asked, answers = _warm()
        print(json.dumps({**job, **given}), file=asked, flush=True)
        code = int(answers.readline())
        return subprocess.CompletedProcess(args, code, out.read_text(errors="replace"), err.read_text(errors="replace"))


@functools.cache
def _warm() -> tuple[IO[str], IO[str]]:
    """Asks warm.py, and its answers. It ends when this process does."""
    process = subprocess.Popen([sys.executable, str(WARM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.returncode = 0  # nobody waits for it
    assert process.stdin
    assert process.stdout
    return process.stdin, process.stdout
