"""How a user's command ran: `gpudoctor why`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip

QUESTION = "command"
"""Also the subject of the experiments with the command."""
NAME = "the output of the command"
"""Of the text with what the command printed."""


@dataclass(frozen=True)
class Command(Guarded):
    """line: as typed. failure: why it did not work. kind: "failed", "killed", "hangs", "slow", or "interrupted" by the user.

    seconds: how long it ran. waiting: what its processes did when its time was up. left: processes that it left running, and
    that were ended. not_repeated: why it was not repeated, "" if it was.
    """

    line: str
    failure: str
    kind: str
    seconds: float
    waiting: tuple[str, ...]
    left: tuple[str, ...]
    not_repeated: str

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the line, as a shell would read them; () if no shell can."""
        try:
            return tuple(shlex.split(self.line))
        except ValueError:
            return ()


def command_of(replies: Replies) -> Command:
    """Skip if no command was run."""
    if not replies.starting_with(QUESTION).get(QUESTION):
        raise Skip("no command was run (gpudoctor why -- COMMAND)")
    value: dict[str, Any] = replies.value(QUESTION)
    return Command(
        line=value["line"],
        failure=value["failure"],
        kind=value["kind"],
        seconds=value["seconds"],
        waiting=tuple(value["waiting"]),
        left=tuple(value["left"]),
        not_repeated=value["not_repeated"],
    )
