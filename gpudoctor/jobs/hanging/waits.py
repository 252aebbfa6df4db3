"""What one thread waits for: its system call, and what the call's descriptor, path or child is."""

from __future__ import annotations

import re
from typing import Any

from gpudoctor.jobs.hanging import calls
from gpudoctor.jobs.hanging.descriptors import Descriptors
from gpudoctor.jobs.hanging.proc import MOST_THREADS, Proc

MOST_POLLED = 8
MOST_KERNEL_FRAMES = 16
_PIPE = re.compile(r"pipe|fifo")
_OPENS_FIFO = re.compile(r"wait_for_partner|fifo_open")
_IN_KERNEL = re.compile(r"\[<0*[0-9a-f]*>\]\s+(\w+)")


def threads(proc: Proc, pid: int) -> list[int]:
    """The main thread first."""
    numbers = [int(name) for name in proc.names(pid, "task")][:MOST_THREADS]
    return sorted(numbers, key=lambda thread: (thread != pid, thread))


def sample(proc: Proc, pid: int) -> dict[int, tuple[str, int, str]]:
    """Thread -> its state, its processor ticks and where it waits in the kernel."""
    found = {}
    for thread in threads(proc, pid):
        if stat := proc.stat(pid, thread):
            found[thread] = (stat.state, stat.ticks, wchan(proc, pid, thread))
    return found


def wchan(proc: Proc, pid: int, thread: int) -> str:
    name = proc.text(pid, f"task/{thread}/wchan", 256).strip()
    return "" if name == "0" else name


def of_thread(proc: Proc, open_files: Descriptors, pid: int, thread: int, is_stuck: bool) -> dict[str, Any]:
    """{"call", "waits": [...], "path", "child", "kernel"}. is_stuck: in state D; reading its memory could block."""
    call = calls.call_of(proc.text(pid, f"task/{thread}/syscall", 512))
    where = wchan(proc, pid, thread)
    found: dict[str, Any] = {"call": call.name, "waits": _descriptors(proc, open_files, pid, call, where, is_stuck)}
    at = 0 if call.name in calls.PATH_FIRST else 1 if call.name in calls.PATH_SECOND else None
    if at is not None and not is_stuck and (path := proc.words(pid, call.arguments[at])):
        if _OPENS_FIFO.search(where):
            access = {0: "r", 1: "w"}.get(call.arguments[at + 1] & 3, "rw")
            found["waits"] = [{"fd": -1, "access": access, **open_files.fifo(pid, path, access)}]
        else:
            found["waits"] = [{"fd": -1, **open_files.path(pid, path)}]
    if call.name in calls.WAITS_FOR_CHILD:
        number = call.arguments[0 if call.name == "wait4" else 1]
        found["child"] = number if 0 < number < 1 << 31 else 0
    if call.name == "futex":
        found["timed"] = bool(call.arguments[3])
    if kernel := _IN_KERNEL.findall(proc.text(pid, f"task/{thread}/stack", 1 << 14)):
        found["kernel"] = kernel[:MOST_KERNEL_FRAMES]
    return found


def _descriptors(
    proc: Proc, open_files: Descriptors, pid: int, call: calls.Call, where: str, is_stuck: bool
) -> list[dict[str, Any]]:
    numbers: list[int] = []
    if call.name in calls.ON_DESCRIPTOR:
        numbers = [call.arguments[0]]
    elif call.name in calls.POLLS and not is_stuck:
        numbers = proc.polled(pid, call.arguments[0], call.arguments[1])
    elif call.name in calls.EPOLLS:
        numbers = open_files.epolled(pid, call.arguments[0])
    found = [held for number in numbers[:MOST_POLLED] if number < 1 << 31 and (held := open_files.of(pid, number))]
    if len(found) == 1 and found[0]["kind"] in ("file", "fifo") and _PIPE.search(where):
        return [{**found[0], **open_files.fifo(pid, found[0]["path"], found[0]["access"])}]
    return found
