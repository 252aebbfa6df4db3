"""A program that does not move: what its processes, ranks and GPUs did while gpudoctor looked (`gpudoctor hang`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.job.recorded import Answer, Dump, Frame, Timeout, is_own
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip

QUESTION = "job-hang"
STILL = 0.98  # share of samples in one stack, from which on a thread counts as not moving
SPINS = 0.5  # cores
IDLE = 0.05
MOVED_BYTES = 1 << 16


@dataclass(frozen=True)
class Holder:
    """A process at the other end of a pipe or a socket."""

    pid: int
    name: str = ""
    state: str = ""


@dataclass(frozen=True)
class Awaited:
    """A descriptor or path that a thread waits for.

    kind: "file", "pipe", "fifo", "socket", "terminal", "device", "eventfd" ... holders: the processes at the other end. alone:
    no process is at the other end. fs, mount, source: of a file, from the mount table.
    """

    fd: int = -1
    kind: str = ""
    path: str = ""
    access: str = ""
    fs: str = ""
    mount: str = ""
    source: str = ""
    holders: tuple[Holder, ...] = ()
    alone: bool = False
    own_end: bool = False
    protocol: str = ""
    local: str = ""
    remote: str = ""
    state: str = ""
    unsent_bytes: int = 0
    unread_bytes: int = 0


@dataclass(frozen=True)
class Thread:
    """states: one letter for each look. cores: how much of a processor it used. where: in the kernel.

    stays: the share of samples in its commonest stack, -1 if it was not sampled. frames: the innermost first; () if not known.
    timed: the call has a time limit.
    """

    id: int
    name: str = ""
    states: str = ""
    cores: float = 0.0
    where: str = ""
    call: str = ""
    child: int = 0
    timed: bool = False
    waits: tuple[Awaited, ...] = ()
    kernel: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    gil: bool = False
    stays: float = -1.0

    @property
    def is_blocked(self) -> bool:
        """In state D each time, and in the same place: a program that reads from a slow disk is found in it often as well."""
        return bool(self.states) and set(self.states) == {"D"} and self.moves is not True

    @property
    def moves(self) -> bool | None:
        """None: not known."""
        if self.stays >= 0:
            return self.stays < STILL
        if self.cores < IDLE and set(self.states) <= {"S", "D", "T", "t"}:
            return False
        return None

    @property
    def spins(self) -> bool:
        """It uses the processor; on a busy machine it may only wait for one (state R)."""
        return self.cores >= SPINS or (self.cores > IDLE and len(self.states) > 1 and set(self.states) == {"R"})

    @property
    def own_frame(self) -> Frame | None:
        """The innermost call in a file of the program itself, not of Python or a package."""
        own = (frame for frame in self.frames if is_own(frame.file))
        return next(own, self.frames[0] if self.frames else None)


@dataclass(frozen=True)
class Process:
    """rank, world, local_rank, local_world: -1 for a process that is not a rank. inner_pid: in its own container.
    master: the address of its job's store. forked: it runs the program of its parent.

    started: seconds since boot.
    """

    pid: int
    inner_pid: int = 0
    name: str = ""
    parent: int = 0
    forked: bool = False
    ours: bool = True
    tracer: int = 0
    states: str = ""
    frozen: bool = False
    cores: float = 0.0
    moved_bytes: int = 0
    started: float = 0.0
    python: bool = False
    no_stack: str = ""
    rank: int = -1
    world: int = -1
    local_rank: int = -1
    local_world: int = -1
    launcher: bool = False
    master: str = ""
    threads: tuple[Thread, ...] = ()

    @property
    def main(self) -> Thread:
        return next((thread for thread in self.threads if thread.id == self.pid), Thread(self.pid))

    @property
    def is_gone(self) -> bool:
        """It ended, but its parent has not noticed, or it ended while gpudoctor looked."""
        return self.states[-1:] in ("Z", "X", "")

    @property
    def is_stopped(self) -> bool:
        return bool(self.states) and set(self.states) <= {"T"}

    @property
    def shown(self) -> str:
        return f"rank {self.rank} ({self.name}, pid {self.pid})" if self.rank >= 0 else f"{self.name} (pid {self.pid})"

    @property
    def moves(self) -> bool | None:
        """None: not known. Of a Python program whose stacks were sampled, the main thread decides."""
        if self.is_gone or self.is_stopped or self.frozen:
            return False
        if self.moved_bytes > MOVED_BYTES and self.main.moves is not False:
            return True
        if self.main.moves is not None:
            return self.main.moves
        return None if self.cores >= IDLE else False


@dataclass(frozen=True)
class Lock:
    """A file lock for which a process waits. kind: FLOCK, POSIX, OFDLCK."""

    pid: int
    holder: int
    kind: str = ""
    inode: str = ""


@dataclass(frozen=True)
class OnGpu:
    pid: int
    mib: int = 0


@dataclass(frozen=True)
class WatchedGpu:
    """busy, memory_busy: % at each look. watts: likewise."""

    index: int
    uuid: str = ""
    name: str = ""
    busy: tuple[float, ...] = ()
    memory_busy: tuple[float, ...] = ()
    watts: tuple[float, ...] = ()
    processes: tuple[OnGpu, ...] = ()
    used_mib: int = 0
    total_mib: int = 0

    @property
    def is_full(self) -> bool:
        """A kernel ran all the time."""
        return len(self.busy) > 1 and min(self.busy) >= 99

    def is_used_by(self, process: Process) -> bool:
        return any(held.pid in (process.pid, process.inner_pid) for held in self.processes)

    @property
    def is_idle(self) -> bool:
        return len(self.busy) > 1 and max(self.busy) <= 1


@dataclass(frozen=True)
class Look:
    """All that was seen. asked: "pid 123", "Slurm job 7" or "files"."""

    asked: str = ""
    seconds: float = 0.0
    uptime: float = 0.0
    processes: tuple[Process, ...] = ()
    left_out: int = 0
    denied: tuple[int, ...] = ()
    no_stacks: str = ""
    locks: tuple[Lock, ...] = ()
    gpus: tuple[WatchedGpu, ...] = ()
    no_gpus: str = ""
    ras: tuple[Answer, ...] = ()
    no_ras: str = ""
    no_dumps: str = ""
    dumps: tuple[Dump, ...] = ()
    timeouts: tuple[Timeout, ...] = ()

    @property
    def ranks(self) -> tuple[Process, ...]:
        """The processes that are ranks of a job with several, without their own children, in the order of their numbers."""
        members = {process.pid: process for process in self.processes if process.world > 1 and process.rank >= 0}
        own = [process for process in members.values() if not _is_below_same(process, members)]
        return tuple(sorted(own, key=lambda process: process.rank))

    def process(self, pid: int) -> Process | None:
        return next((process for process in self.processes if process.pid == pid), None)

    def children(self, pid: int) -> tuple[Process, ...]:
        return tuple(process for process in self.processes if process.parent == pid)


class Stuck(Guarded):
    """Skip if no program was looked at."""

    def __init__(self, replies: Replies) -> None:
        if not replies.starting_with(QUESTION).get(QUESTION):
            raise Skip("no program was looked at (gpudoctor hang)")
        self.look: Look = msgspec.convert(replies.value(QUESTION), Look)


def _is_below_same(process: Process, members: dict[int, Process]) -> bool:
    """A loader's worker inherits the variables of its rank."""
    parent = members.get(process.parent)
    return parent is not None and parent.rank == process.rank


def listed(numbers: Sequence[int]) -> str:
    """`0, 1 and 3`; long runs as `0-31`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [part for run in runs for part in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""
