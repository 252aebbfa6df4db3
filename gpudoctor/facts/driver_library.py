"""A library of the driver, as loaded and initialised in a separate process."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from gpudoctor.facts.crashes import crash
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip, Unavailable

MOST_GPUS = 1024  # MIG devices included


class DriverLibrary(Guarded):
    """TOPIC: the prefix of its questions. NAME: of the interface. FILE: the library's name in messages."""

    TOPIC: ClassVar[str]
    NAME: ClassVar[str]
    FILE: ClassVar[str]

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def _start(self) -> dict[str, Any]:
        start: dict[str, Any] = self._replies.value(self.TOPIC)
        return start

    @cached_property
    def died(self) -> str | None:
        """The step in which the library crashed or hung, in words; None if it did not."""
        return crash(self._replies, self.TOPIC)

    @cached_property
    def timed_out(self) -> bool:
        """Whether it was killed after a timeout, rather than crashed."""
        replies = self._replies.starting_with(f"probe:{self.TOPIC}") | self._replies.starting_with(self.TOPIC)
        return any(reply.status == "timeout" for reply in replies.values())

    @cached_property
    def library(self) -> str | None:
        """The file that the loader used; None if not found."""
        path: str | None = self._start["library"]
        return path

    @cached_property
    def load_error(self) -> str | None:
        """The loader's message if it did not find or could not load the library."""
        return self._start.get("load_error") or None

    @cached_property
    def init_seconds(self) -> float:
        return float(self._loaded("init_seconds"))

    def _loaded(self, name: str) -> Any:
        if self.library is None:
            raise Unavailable(f"{self.FILE} cannot be loaded: {self.load_error}", Skip.NOT_INSTALLED)
        if name not in self._start:
            raise Unavailable(f"{name} of {self.NAME} is unknown")
        return self._start[name]


def possible_count(count: int, function: str) -> int:
    """The count, unless no machine has so many GPUs."""
    if not 0 <= count <= MOST_GPUS:
        raise Unavailable(f"{function} answers {count}, which is not a possible number of GPUs")
    return count
