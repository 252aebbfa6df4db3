"""What ranks recorded themselves: flight recorders, watchdogs in logs, and NCCL's RAS threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict


class Frame(NamedTuple):
    """One call of a Python stack."""

    function: str
    file: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"


def is_own(file: str) -> bool:
    """Whether a file belongs to the program itself, as far as its path shows."""
    parts = ("/site-packages/", "/dist-packages/", "/lib/python3", "/torch/", "<frozen", "<string>")
    return not any(part in file for part in parts)


@dataclass(frozen=True)
class Entry:
    """One operation in a dump of the flight recorder."""

    group: str
    sequence: int
    operation: str
    p2p: bool = False
    backend: str = ""
    state: str = ""
    done: bool = False
    sizes: tuple[tuple[int, ...], ...] = ()
    types: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()

    @property
    def own_frame(self) -> Frame | None:
        return next((frame for frame in self.frames if is_own(frame.file)), self.frames[0] if self.frames else None)


@dataclass(frozen=True)
class Group:
    """entered, completed: sequence numbers of the last collectives; -1: unknown."""

    name: str
    ranks: tuple[int, ...] = ()
    entered: int = -1
    completed: int = -1


@dataclass(frozen=True)
class Dump:
    """What one rank's flight recorder holds."""

    rank: int
    path: str = ""
    version: str = ""
    groups: tuple[Group, ...] = ()
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Timeout:
    """What a rank's watchdog wrote into a log. sequence, elements, entered, completed: -1 if it does not say."""

    rank: int
    operation: str = ""
    group: str = ""
    file: str = ""
    sequence: int = -1
    elements: int = -1
    entered: int = -1
    completed: int = -1


class _Named(TypedDict):
    rank: int


class Missing(_Named, total=False):
    """A rank that NCCL cannot reach."""

    pid: int
    host: str
    dead: bool


class Counted(_Named):
    """How many operations of each name a rank launched."""

    counts: dict[str, int]


class Communicator(TypedDict):
    hash: str
    size: int
    ranks: list[Counted]
    missing: list[Missing]


class RasReport(TypedDict, total=False):
    version: str
    communicators: list[Communicator]


@dataclass(frozen=True)
class Answer:
    """What NCCL's RAS socket answered: a report, a text of an older NCCL, or why it did not."""

    address: str = ""
    report: RasReport = field(default_factory=RasReport)
    text: str = ""
    failed: str = ""
