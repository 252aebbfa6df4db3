"""What a process waits for: its state, its system calls and its stack, put into one kind of wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.facts.job.stuck import MOVED_BYTES, Awaited, Look, Process, Thread
from gpudoctor.judging.jobs.hanging import stacks

REMOTE_FS = re.compile(
    r"""
    nfs | fuse | lustre | ceph | cifs | smb | 9p | beegfs | gpfs | glusterfs | afs | wekafs | virtiofs | panfs
    """,
    re.IGNORECASE | re.VERBOSE,
)
_REMOTE_CODE = re.compile(
    r"""
    ^(?: nfs\d?_ | rpc_ | fuse_ | request_wait_answer | ll_ | ptlrpc_ | cl_ | osc_ | ceph_ | cifs_ | smb2?_ | p9_ | v9fs_
    | wait_on_commit )
    """,
    re.VERBOSE,
)
_READS = {"read", "readv", "recvfrom", "recvmsg", "pread64"}
_WRITES = {"write", "writev", "sendto", "sendmsg", "pwrite64"}
_SLEEPS = {"nanosleep", "clock_nanosleep", "pause", "rt_sigsuspend", "rt_sigtimedwait"}
_WAITS_IN_PIPE = re.compile(r"pipe_(?:read|write|wait)")
_VFORK = re.compile(r"vfork|^kernel_clone$")
_DNS = re.compile(r":53$")
_OF_GLOO = ("pt_gloo", "gloo")  # names of the threads that carry out PyTorch's collectives on the CPU
POLLS = 0.8  # share of samples in one stack, from which on a wait that polls counts as one


@dataclass(frozen=True)
class Wait:
    """kind: the name of a cause, such as "stopped". words: "waits in a read of ...". toward: the processes it waits for."""

    kind: str
    words: str
    evidence: dict[str, Any] = field(default_factory=dict)
    toward: tuple[int, ...] = ()
    awaited: Awaited | None = None


def of(look: Look, process: Process) -> Wait | None:
    """None if it moves, or nothing is known about its wait."""
    if found := _of_process(look, process):
        return found
    if process.moves:
        return None
    main = of_thread(look, process, process.main)
    if main and main.kind != "lock":
        return main
    others = [thread for thread in process.threads if thread.id != process.pid and not _is_library(thread)]
    for thread in others:
        own = of_thread(look, process, thread)
        if own and own.kind not in ("lock", "sleep", "polls", "spins"):
            return Wait(own.kind, f"thread {thread.name}: {own.words}", own.evidence, own.toward, own.awaited)
    return _locked(look, process, others) if main else None


def _of_process(look: Look, process: Process) -> Wait | None:
    """What the state of the whole process says."""
    if process.is_gone:
        return Wait("ended", "has ended")
    if process.tracer and set(process.states) & {"t"}:
        return Wait("traced", f"is held by the debugger with pid {process.tracer}", {"tracer": process.tracer})
    if process.frozen:
        return Wait("frozen", "is frozen by its cgroup")
    if process.is_stopped:
        return Wait("stopped", "is stopped by a signal (state T)")
    blocked = next((thread for thread in (process.main, *process.threads) if thread.is_blocked), None)
    if blocked and process.moved_bytes <= MOVED_BYTES:
        return _blocked(look, process, blocked)
    if is_at_start(process):
        return Wait("store", f"waits for the other ranks{_store(process)}{_where(process.main)}", _at(process.main))
    lock = next((lock for lock in look.locks if lock.pid == process.pid), None)
    if lock:
        held = next((one for thread in process.threads for one in thread.waits if thread.call in ("flock", "fcntl")), None)
        path = held.path if held else ""
        words = f"waits for a lock on {path or 'a file'} that pid {lock.holder} holds"
        return Wait("file-lock", words, {"holder": lock.holder, "file": path}, (lock.holder,), held)
    return None


def is_at_start(process: Process) -> bool:
    """It waits for the other ranks or nodes before the program begins: PyTorch polls for that, in a few lines."""
    inside = stacks.inside(process.main)
    return inside is not None and inside.kind == stacks.STORE and process.main.stays >= POLLS


def _store(process: Process) -> str:
    return f" at the start, by the store {process.master}" if process.master else " at the start"


def _blocked(look: Look, process: Process, thread: Thread) -> Wait:
    where = thread.where or next(iter(thread.kernel), "")
    if any(_VFORK.search(name) for name in (where, *thread.kernel)):
        children = tuple(child.pid for child in look.children(process.pid))
        return Wait("child", f"waits until {_named(look, children)} has started its program", _at(thread), children)
    held = next((one for one in thread.waits if one.kind == "file"), None)
    remote = held if held and REMOTE_FS.search(held.fs) else None
    in_code = next((name for name in (where, *thread.kernel) if _REMOTE_CODE.match(name)), "")
    evidence = {"state": "D", "wchan": where, **_at(thread)}
    if remote or in_code:
        on = (
            f"{held.path} on {held.mount} ({held.fs}{f' from {held.source}' if held.source else ''})"
            if held
            else "a network file system"
        )
        evidence |= {"mount": held.mount, "file": held.path, "fs": held.fs} if held else {}
        return Wait("file-system", f"waits in the kernel for {on}{_in(where)}", evidence, awaited=held)
    on = f" for {held.path}" if held and held.path else ""
    return Wait("in-kernel", f"waits in the kernel{on}, and no signal ends that{_in(where)}", evidence, awaited=held)


def of_thread(look: Look, process: Process, thread: Thread) -> Wait | None:
    """None if it moves, or its wait is not known."""
    if thread.moves:
        return None
    inside = stacks.inside(thread)
    if inside and inside.kind == stacks.COLLECTIVE:
        return Wait("collective", f"is in {inside.function}{_where(thread)}", {"operation": inside.function, **_at(thread)})
    if inside and inside.kind == stacks.LOADER:
        workers = tuple(child.pid for child in look.children(process.pid))
        return Wait("loader", f"waits for its data loader{_where(thread)}", _at(thread), workers)
    if inside and inside.kind == stacks.NAME:
        return Wait("name", f"waits for the address of a host name{_where(thread)}", _at(thread))
    for held in thread.waits:
        if found := _on(look, process, thread, held):
            return found
    return _of_call(look, process, thread, inside)


def _on(look: Look, process: Process, thread: Thread, held: Awaited) -> Wait | None:
    """What waiting for a descriptor means."""
    others = tuple(holder.pid for holder in held.holders)
    names = ", ".join(f"{holder.name} (pid {holder.pid})" for holder in held.holders)
    evidence = _at(thread)
    if held.kind in ("pipe", "fifo"):
        writes = thread.call in _WRITES or (thread.call.startswith("open") and held.access == "w")
        name = held.path or ("standard output" if held.fd == 1 else "standard error" if held.fd == 2 else "a pipe")
        if writes and not held.alone:
            words = f"writes to {name}, which is full: {names or 'the process itself'} does not read it"
            return Wait("pipe-full", words + _where(thread), evidence, others, held)
        if thread.call in _READS or held.kind == "fifo" or (held.access == "r" and not writes):
            source = "standard input" if held.fd == 0 else name
            if held.alone or held.own_end:
                return Wait("pipe-silent", f"reads {source}, which no other process has open{_where(thread)}", evidence, (), held)
            return Wait("pipe-read", f"reads {source} from {names}{_where(thread)}", evidence, others, held)
    if held.kind == "terminal" and (thread.call in _READS or held.fd == 0):
        return Wait("input", f"waits for input from the terminal {held.path}{_where(thread)}", evidence, (), held)
    if held.kind == "socket" and held.protocol not in ("", "unix") and held.state != "LISTEN":
        return _on_socket(thread, held, others, names)
    return None


def _on_socket(thread: Thread, held: Awaited, others: tuple[int, ...], names: str) -> Wait:
    evidence = {"remote": held.remote, "socket_state": held.state, **_at(thread)}
    if _DNS.search(held.remote):
        return Wait("name", f"waits for the name server {held.remote}{_where(thread)}", evidence, (), held)
    if held.state == "SYN_SENT":
        return Wait("connect", f"tries to connect to {held.remote}, which does not answer{_where(thread)}", evidence, (), held)
    if others:
        return Wait("local-peer", f"waits for an answer of {names} at {held.remote}{_where(thread)}", evidence, others, held)
    return Wait("peer", f"waits for an answer of {held.remote} ({held.state}){_where(thread)}", evidence, (), held)


def _of_call(look: Look, process: Process, thread: Thread, inside: stacks.In | None) -> Wait | None:
    """What a system call without a descriptor means."""
    if thread.call in ("wait4", "waitid"):
        children = tuple(child.pid for child in look.children(process.pid) if not thread.child or child.pid == thread.child)
        return Wait("child", f"waits until {_named(look, children)} ends{_where(thread)}", _at(thread), children)
    if thread.call in _SLEEPS:
        return Wait("sleep", f"sleeps{_where(thread)}", _at(thread))
    if inside and inside.kind == stacks.FROM_PROCESS:
        children = tuple(child.pid for child in look.children(process.pid))
        return Wait("child", f"waits for another process of the program{_where(thread)}", _at(thread), children)
    if thread.moves is not False:
        return None
    if (inside and inside.kind == stacks.GPU) or (thread.spins and _is_on_gpu(look, process)):
        if gpu_works(look, process):
            return None
        return Wait("gpu", f"waits for its GPU{_where(thread)}", _at(thread))
    if thread.spins:
        return Wait("spins", f"uses {thread.cores:g} cores and stays{_where(thread) or ' in one place'}", _at(thread))
    if thread.call in ("futex", "futex_waitv"):
        return Wait("polls" if thread.timed else "lock", f"waits for another thread{_where(thread)}", _at(thread))
    return Wait("unknown", f"waits{_where(thread)}{_in(thread.call or thread.where)}", _at(thread))


def _locked(look: Look, process: Process, others: list[Thread]) -> Wait:
    """The main thread waits for a lock, and no other thread does anything that could release it."""
    main = process.main
    at = [f"{thread.name or thread.id}{_where(thread)}" for thread in (main, *others) if thread.frames]
    evidence = {"threads": at, **_at(main)}
    if any(thread.moves is not False for thread in others) or main.timed:
        return Wait("polls", f"waits for another thread{_where(main)}", evidence)
    parent = look.process(process.parent)
    forked = process.forked and parent is not None and len(parent.threads) > 1
    if forked and not others:
        words = f"was forked from pid {process.parent}, which has other threads, and waits for a lock{_where(main)}"
        return Wait("fork-lock", words, {**evidence, "parent": process.parent})
    if not main.frames and any(thread.name.startswith(_OF_GLOO) for thread in process.threads):
        return Wait("collective", "waits for gloo, as in a collective", {"operation": "a collective of gloo", **evidence})
    if others:
        return Wait("deadlock", f"has threads that wait for each other: {', '.join(at[:4])}", evidence)
    return Wait("lock", f"waits for a lock that no other thread can release{_where(main)}", evidence)


def _is_library(thread: Thread) -> bool:
    """A helper thread of a library, which waits all the time; without a stack, every thread but the main one is one."""
    frame = thread.own_frame
    idle = ("_worker", "_feed", "monitor", "_pin_memory_loop", "_run_monitor", "read_thread", "_read_thread")
    return frame is None or any(one.function.rpartition(".")[2] in idle for one in thread.frames)


def gpu_works(look: Look, process: Process) -> bool:
    """A GPU of the process reads or writes its memory: kernels that only wait do not."""
    return any(max(gpu.memory_busy, default=0) > 1 for gpu in look.gpus if gpu.is_used_by(process))


def moves(look: Look, process: Process) -> bool | None:
    """None: not known. A program that waits for a GPU at work in the same line of each step moves as well."""
    waits_for_gpu = process.main.spins or ((inside := stacks.inside(process.main)) is not None and inside.kind == stacks.GPU)
    if is_at_start(process):
        return False
    if process.moves is False and waits_for_gpu and gpu_works(look, process):
        return True
    return process.moves


def _is_on_gpu(look: Look, process: Process) -> bool:
    """It has memory on a GPU; or it is a rank of a job that uses NCCL, where NVML does not say whose memory that is."""
    if process.world > 1 and any(answer.report or answer.text for answer in look.ras):
        return True
    return any(gpu.is_used_by(process) for gpu in look.gpus)


def _named(look: Look, pids: tuple[int, ...]) -> str:
    found = [process.shown for pid in pids if (process := look.process(pid))]
    return ", ".join(found[:3]) or "a child process"


def _at(thread: Thread) -> dict[str, Any]:
    place = stacks.shown(thread)
    stack = [f"{frame.function} ({frame.place})" for frame in thread.frames[:12]]
    return {**({"at": place} if place else {}), **({"stack": stack} if stack else {})}


def _where(thread: Thread) -> str:
    place = stacks.shown(thread)
    return f" at {place}" if place else ""


def _in(name: str) -> str:
    return f" ({name})" if name else ""


def chain(look: Look, process: Process) -> Iterator[tuple[Process, Wait | None]]:
    """A process, those that it waits for, and so on: each once, breadth first."""
    queue, seen = [process.pid], set()
    for pid in queue:
        held = look.process(pid)
        if held is None or pid in seen:
            continue
        seen.add(pid)
        wait = of(look, held)
        yield held, wait
        queue += wait.toward if wait else ()
