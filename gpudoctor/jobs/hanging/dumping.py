"""Asks the ranks of a PyTorch job to write their flight recorders, through the pipes that PyTorch made for this purpose.

PyTorch makes a FIFO for each rank if TORCH_NCCL_DEBUG_INFO_PIPE_FILE is set, and dumps when something is written into it.
https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from gpudoctor.jobs.hanging import recorder
from gpudoctor.jobs.hanging.process import Sampled

VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
SECONDS = 12.0  # PyTorch looks once a second; on two H200, a dump took up to 7 s
POLL_SECONDS = 0.1


def requested(members: Iterable[Sampled]) -> str:
    """Asks and waits for the dumps. Returns why there are none, "" if all came."""
    ranks = [one for one in members if one.place.rank >= 0 and one.variables.get(VARIABLE)]
    if not ranks:
        return f"no rank was started with {VARIABLE}"
    began = time.time()
    asked = [one for one in ranks if _ask(f"{one.variables[VARIABLE]}{one.place.rank}.pipe", one.uid)]
    if not asked:
        return "no rank reads its pipe: its flight recorder is off, or it does not use NCCL"
    prefixes = recorder.places(one.variables for one in asked)
    owners = {one.uid for one in asked}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if len(list(recorder.beside(prefixes, began - 1, owners))) >= len(asked):
            time.sleep(POLL_SECONDS)  # until the last one is written
            return ""
        time.sleep(POLL_SECONDS)
    return f"after {SECONDS:g} s, not all ranks had written their flight recorders"


def _ask(path: str, owner: int) -> bool:
    """Only a FIFO of the rank's user, with a reader, is written to: the path is what a variable of the rank says."""
    with contextlib.suppress(OSError):
        if stat.S_ISFIFO(Path(path).stat().st_mode):
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            try:
                about = os.fstat(descriptor)
                return stat.S_ISFIFO(about.st_mode) and about.st_uid == owner and os.write(descriptor, b"1\n") > 0
            finally:
                os.close(descriptor)
    return False
