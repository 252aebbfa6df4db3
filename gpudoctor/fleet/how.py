"""How nodes are asked, and where all of them stand: what every engine has in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpudoctor.fleet.conversation import Asked
from gpudoctor.fleet.model import State
from gpudoctor.model import Snapshot


@dataclass(frozen=True)
class How:
    """engine: one of "ssh", "slurm" and "local". seconds: for one node, from its connection on. options: for ssh or srun."""

    engine: str = "ssh"
    fanout: int = 64
    seconds: float = 60
    options: str = ""


@dataclass
class Counts:
    """Where all nodes together stand. silent: those that ended without an answer."""

    total: int
    running: int = 0
    done: int = 0
    silent: int = 0

    def words(self) -> str:
        silent = f", {self.silent:,} without an answer" if self.silent else ""
        return f"{self.done:,} of {self.total:,} nodes done{silent}, {self.running:,} running"


Done = Callable[[str, "Snapshot | None", State, str], None]
"""Called once for each node when it has ended, with its answers."""
Ask = Callable[[Sequence[str], Asked, How, Done, Callable[[str], None]], None]
