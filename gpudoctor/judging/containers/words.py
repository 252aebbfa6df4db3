"""One text by which an engine says that a container does not start, and what it means. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gpudoctor.model import Cause, Confidence, Problem

BY_HOST = r'(?<!process: )(?<!init: )(?<!caused: )(?<!caused: ")'
"""Before `exec: "program"`: who calls it is not runc, for the container, but an engine or a hook on the host."""


class Message(NamedTuple):
    """A text of an engine. words: what is wrong, with values in braces. causes: what can be behind it, in the order in which
    they are to be ruled out. sure: how sure `problem` is by itself; UNKNOWN where only the host tells faults apart. mostly:
    the cause that a text alone most likely means."""

    pattern: str
    problem: Problem
    words: str = "{said}"
    causes: tuple[Cause, ...] = ()
    sure: Confidence = Confidence.CONFIRMED
    mostly: Cause | None = None
