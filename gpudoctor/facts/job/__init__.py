"""A user's program that runs: what was observed of it from outside and inside, and what it waits for."""

from __future__ import annotations

from functools import cached_property

from gpudoctor.facts.job.stuck import Stuck
from gpudoctor.facts.job.traced import Traced, traced_of
from gpudoctor.facts.job.watched import Watched, watched_of
from gpudoctor.facts.replies import Replies


class Job:
    """A topic per way of looking. Each raises Skip, as not applicable, if the program was not looked at in this way."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def stuck(self) -> Stuck:
        """What a program that does not move waits for."""
        return Stuck(self._replies)

    @cached_property
    def traced(self) -> Traced:
        """What `gpudoctor profile` recorded from inside."""
        return traced_of(self._replies)

    @property
    def alone(self) -> bool:
        """Whether a program was looked at and the machine was not."""
        return bool(self._replies.starting_with("job-")) and not self._replies.starting_with("identity")

    @cached_property
    def watched(self) -> Watched:
        """What `gpudoctor watch` saw from outside."""
        return watched_of(self._replies)
