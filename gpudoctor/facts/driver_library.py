"""A library of the driver, as a process of its own loaded and initialised it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from gpudoctor.facts.crashes import crash
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Skip, Unavailable


class DriverLibrary:
    """TOPIC: how its questions begin. NAME: of the interface. FILE: what a message calls the library."""

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
        """What the library did not survive: a step that crashed it or never came back, in words."""
        return crash(self._replies, self.TOPIC)

    @cached_property
    def timed_out(self) -> bool:
        """Whether it was killed because it gave no answer in time, rather than that it crashed."""
        replies = self._replies.starting_with(f"probe:{self.TOPIC}") | self._replies.starting_with(self.TOPIC)
        return any(reply.status == "timeout" for reply in replies.values())

    @cached_property
    def library(self) -> str | None:
        """The file that the loader took; None if there is none."""
        path: str | None = self._start["library"]
        return path

    @cached_property
    def load_error(self) -> str | None:
        """The loader's message, if it found no library or could not load it."""
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
