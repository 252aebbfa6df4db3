"""gpudoctor in a process of its own, with limits on CPU time and memory: a slow machine changes neither.

The process is forked from one that has imported and judged before (warm.py): else every start would cost more than the command.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from waiting import HOPELESS_SECONDS

WARM = Path(__file__).with_name("warm.py")


def limited(
    args: list[str], cpu_seconds: int, address_bytes: int = 1 << 30, call: str = "gpudoctor.__main__:main"
) -> subprocess.CompletedProcess[str]:
    """Killed if it takes more CPU time, or waits for what never comes; MemoryError in it if it takes more memory.

    call: what is run in the process, module:function.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        job = {"call": call, "args": args, "out": str(out), "err": str(err)}
        limits = {"cpu_seconds": cpu_seconds, "address_bytes": address_bytes, "seconds": int(HOPELESS_SECONDS)}
        asked, answers = _warm()
        print(json.dumps({**job, **limits}), file=asked, flush=True)
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
