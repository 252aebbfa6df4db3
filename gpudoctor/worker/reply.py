"""The answer to one question, or the reason why it is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Skip(Exception):
    """Raised while judging or measuring: not possible here because of `reason`, which is of one `kind`."""

    NOT_APPLICABLE = "not applicable"
    UNSUPPORTED = "not supported here"
    NOT_PERMITTED = "not permitted"
    NOT_INSTALLED = "not installed"
    NO_ANSWER = "no answer"
    NOT_ASKED = "not asked"
    NOT_MEASURED = "not measured"
    BUSY = "busy"
    CUT_OFF = "cut off"
    IGNORED = "ignored"

    def __init__(self, reason: str, kind: str = NOT_APPLICABLE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


MOST_GPUS = 256  # in one machine; a larger count of a driver is wrong


@dataclass(frozen=True)
class Reply:
    """The machine's answer to one question; "missing" means that it was looked for and does not exist."""

    status: str  # ok, missing, denied, timeout, died or error; for a workload also skipped, stopped or cut
    value: Any = None
    detail: str = ""
    seconds: float = 0.0
