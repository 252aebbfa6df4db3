"""Runs a program and keeps what it prints, within limits of time and size."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from typing import Dict, NamedTuple, Optional, Sequence

MOST_BYTES = 16 << 20  # of each stream; no program that is asked prints a tenth of it
POLL_SECONDS = 0.1  # how soon the end of a program is noticed whose descendants keep its output open
CHUNK_BYTES = 1 << 16


class TooMuch(Exception):
    """A program printed more than MOST_BYTES, and was killed."""


class Captured(NamedTuple):
    code: int
    out: bytes
    err: bytes


def captured(
    argv: Sequence[str],
    seconds: Optional[float] = None,
    env: Optional[Dict[str, str]] = None,
    cwd: Optional[str] = None,
    session: bool = False,
) -> Captured:
    """Runs a program without input, until it ends. It is killed if it takes too long or prints too much.

    session: run it in a separate session, which is killed as a whole.
    OSError if it cannot be run, subprocess.TimeoutExpired if it does not end in time, TooMuch.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
        start_new_session=session,
    )
    try:
        return _read(process, argv, seconds)
    except BaseException:
        with contextlib.suppress(OSError):
            if session:
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        raise
    finally:
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


def _read(process: "subprocess.Popen[bytes]", argv: Sequence[str], seconds: Optional[float]) -> Captured:
    deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
    kept: Dict[int, bytearray] = {}
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            if stream:
                kept[stream.fileno()] = bytearray()
                selector.register(stream.fileno(), selectors.EVENT_READ)
        out, err = kept.values()
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(list(argv), seconds or 0)
            ready = selector.select(min(left, POLL_SECONDS))
            if not ready and process.poll() is not None:
                break
            for key, _ in ready:
                data = os.read(key.fd, CHUNK_BYTES)
                kept[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
                if len(kept[key.fd]) > MOST_BYTES:
                    raise TooMuch("it printed more than %d MiB" % (MOST_BYTES >> 20))
    return Captured(process.wait(max(0.0, deadline - time.monotonic()) if seconds else None), bytes(out), bytes(err))
