"""How one run of a program ended, and whether that is good."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

CHANGING = re.compile(r"0x[0-9a-f]+|/\S+|\b[0-9a-f]{8,}\b|\d+(\.\d+)?", re.IGNORECASE)
MOST_WORDS = 2000
TIMEOUT = "timeout"


@dataclass(frozen=True)
class Outcome:
    """worked: it reached its end. how: how it ended, if it did not: "error", "exit code 3", "killed by SIGSEGV", "timeout".

    words: the last words of a failure. metric: the figure by which it is slow or fast, in `unit`; None without one. A run that
    could not start did not work.
    """

    worked: bool
    how: str = ""
    words: str = ""
    seconds: float = 0.0
    metric: float | None = None
    unit: str = ""

    def is_like(self, other: Outcome) -> bool:
        """Whether both failed in the same way, whatever numbers and paths their words contain. All that hang are alike."""
        if self.how == other.how == TIMEOUT:
            return True
        return (self.worked, self.how, _constant(self.words)) == (other.worked, other.how, _constant(other.words))

    def as_value(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Outcome:
        """One of facts.guarded.WRONG if it is not the value of an outcome."""
        metric = value.get("metric")
        return cls(
            value["worked"] is True,
            str(value.get("how", "")),
            str(value.get("words", ""))[-MOST_WORDS:],
            float(value.get("seconds", 0.0)),
            None if metric is None else float(metric),
            str(value.get("unit", "")),
        )


Good = Callable[[Outcome], bool]


def worked(outcome: Outcome) -> bool:
    return outcome.worked


def improved(slow: Outcome, ratio: float = 1.25, less_is_better: bool = False) -> Good:
    """Good is a run whose metric is better than that of the slow one by this ratio."""

    def is_good(outcome: Outcome) -> bool:
        if not outcome.worked or outcome.metric is None or slow.metric is None:
            return False
        better, worse = (slow.metric, outcome.metric) if less_is_better else (outcome.metric, slow.metric)
        return better > worse and better >= worse * ratio

    return is_good


def _constant(words: str) -> str:
    """The last line, which names the error, without what differs from run to run."""
    lines = words.strip().splitlines()
    return CHANGING.sub("#", lines[-1].strip()) if lines else ""
