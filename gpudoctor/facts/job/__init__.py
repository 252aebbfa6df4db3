"""A user's program that runs: what was observed of it from outside and inside, and what it waits for."""

from __future__ import annotations

from gpudoctor.facts.replies import Replies


class Job:
    """A topic per way of looking. Each raises Skip, as not applicable, if the program was not looked at in this way."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
