"""gpudoctor in a forked process (forked.py) that must end by itself: with limits on CPU time and memory, or without."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from forked import COMMAND, MAIN, run
from waiting import HOPELESS_SECONDS

ALONE = {"PATH": "/nonexistent", "HTTPS_PROXY": "http://127.0.0.1:1"}


def limited(
    args: list[str], cpu_seconds: int, address_bytes: int = 1 << 30, call: str = MAIN
) -> subprocess.CompletedProcess[str]:
    """Killed if it takes more CPU time, or waits for what never comes; MemoryError in it if it takes more memory.

    call: what is run in the process, module:function. A slow machine changes neither limit.
    """
    limits = {"cpu_seconds": cpu_seconds, "address_bytes": address_bytes, "seconds": int(HOPELESS_SECONDS)}
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **ALONE, "HOME": folder, "XDG_STATE_HOME": folder}
        return _ran(args, call=call, limits=limits, cwd="/", env=env)


def gpudoctor(*args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As `python -m gpudoctor` here, or in `cwd`, with this environment, or `env`."""
    return _ran(args, env=env, cwd=cwd, limits={"seconds": int(HOPELESS_SECONDS)})


def _ran(args: object, **options: object) -> subprocess.CompletedProcess[str]:
    texts = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    return run([*COMMAND, *args], timeout=None, **texts, **options)  # type: ignore[misc]
