"""The values of a fleet: what each node answered, and how the nodes differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpudoctor.model import Action, Status

SCHEMA = "gpudoctor.fleet/1"
NODE_SCHEMA = "gpudoctor.node/1"


class State(str, Enum):
    """What became of the question to a node."""

    ANSWERED = "answered"
    PARTIAL = "partial"
    TIMED_OUT = "timed-out"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    HOST_KEY = "host-key"
    NO_PYTHON = "no-python"
    NO_GPU = "no-gpu"
    BUSY = "busy"
    FLOODED = "flooded"
    INVALID = "invalid"
    FAILED = "failed"
    MISSING = "missing"
    INTERRUPTED = "interrupted"

    @property
    def has_answered(self) -> bool:
        """Whether there are answers that can be judged."""
        return self in (State.ANSWERED, State.PARTIAL, State.NO_PYTHON, State.NO_GPU)

    @property
    def is_of_node(self) -> bool:
        """False for what says nothing about the node: it is about a file, a scheduler's queue, or ^C."""
        return self not in (State.INVALID, State.MISSING, State.BUSY, State.INTERRUPTED)


TITLES = {
    State.PARTIAL: "only a part of the questions was answered",
    State.TIMED_OUT: "no answer within the time limit",
    State.UNREACHABLE: "unreachable",
    State.REFUSED: "refused the connection or the login",
    State.HOST_KEY: "the SSH host key does not match or is not known",
    State.NO_PYTHON: "no Python 3.8+: only a limited check by its shell",
    State.NO_GPU: "no NVIDIA GPU found",
    State.BUSY: "the scheduler gave no access",
    State.FLOODED: "cut off, because its output had no end",
    State.INVALID: "the answer cannot be used",
    State.FAILED: "the check did not run",
    State.MISSING: "no file of this node",
    State.INTERRUPTED: "interrupted before it answered",
}


@dataclass(frozen=True)
class Problem:
    """A root cause on a node. gpu: None if it concerns the machine. area: of the check that found it."""

    id: str
    title: str
    message: str
    status: Status
    action: Action
    check: str
    area: str
    gpu: int | None = None


@dataclass(frozen=True)
class Difference:
    """A value of a node that is not that of the majority. gpus: the GPUs it is about; () for the machine.

    kind: "version", "setting" or "figure". share: of the median, for a figure.
    """

    kind: str
    what: str
    value: str
    usual: str
    gpus: tuple[int, ...] = ()
    share: float | None = None


@dataclass(frozen=True)
class Measured:
    """A figure of a node. share: of the expected value; of_median: of the median of its kind, 1 or more for a good one."""

    what: str
    unit: str
    gpu: int | None
    value: float
    share: float | None
    of_median: float | None


@dataclass(frozen=True)
class Node:
    """One node. status: of its report; None without one. expected_gpus: how many its kind has; lost: those that cannot be used.

    absent_gpus: how many of the expected ones are not there, without a number.
    """

    name: str
    state: State
    detail: str = ""
    kind: str = ""
    status: Status | None = None
    taken: str = ""
    gpus: int | None = None
    expected_gpus: int | None = None
    lost: tuple[int, ...] = ()
    lost_gpus: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    differences: tuple[Difference, ...] = ()
    figures: tuple[Measured, ...] = ()
    ran: int = 0
    applicable: int = 0

    @property
    def is_bad(self) -> bool:
        """Whether work should not be placed on it: it gave no full answer, a check failed, or a GPU is lost."""
        return self.state is not State.ANSWERED or self.status is Status.FAIL or bool(self.lost_gpus)


@dataclass(frozen=True)
class Item:
    """One thing that the nodes of a group have in common. kind: "state", "problem", "version", "setting" or "figure".

    id: of the problem or the state. gpus: node -> GPUs, if it is about some.
    """

    kind: str
    id: str
    words: str
    status: Status
    action: Action = Action.NONE
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Nodes that differ from the majority in the same way. nodes: as a NodeSet; names: each of them."""

    nodes: str
    names: tuple[str, ...]
    status: Status
    lost_gpus: int
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Kind:
    """Nodes of one model and GPU, which are compared with each other. usual: what most of them have."""

    name: str
    nodes: int
    gpus: int
    usual: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drain:
    """What takes nodes out of service. slurm, kubernetes: lines to paste."""

    nodes: str
    reason: str
    slurm: str
    kubernetes: str


@dataclass(frozen=True)
class Fleet:
    """The verdict on many nodes.

    agree: answered, and differ in nothing. common: what most nodes of a kind share. good, bad: NodeSets; each node is in one.
    """

    version: str
    status: Status
    total: int
    answered: int
    agree: int
    gpus: int
    lost_gpus: int
    kinds: tuple[Kind, ...]
    groups: tuple[Group, ...]
    common: tuple[Group, ...]
    nodes: tuple[Node, ...]
    good: str
    bad: str
    drains: tuple[Drain, ...]
    first_taken: str = ""
    last_taken: str = ""
    schema: str = SCHEMA
