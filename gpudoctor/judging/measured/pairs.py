"""Copies between two GPUs, as peer-transfers measured them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.join import index_of

WORKLOAD = "peer-transfers"
_NAME = re.compile(r"([0-9]{1,4})(<?>)([0-9]{1,4})")


class Pair(NamedTuple):
    """NVML's indices of the sender and the receiver, and what was measured."""

    one: int
    other: int
    values: dict[str, Any]

    @property
    def name(self) -> str:
        return f"copy GPU {self.one} to {self.other}"

    @property
    def refused(self) -> str:
        return str(self.values.get("refused", ""))

    @property
    def wrong(self) -> str:
        """How the data was damaged, "" if it was not."""
        if not self.values.get("wrong_words") and not self.values.get("wrong_words_by_kernels"):
            return ""
        ways = {"copied": "wrong_words", "read and written by kernels": "wrong_words_by_kernels"}
        counts = {way: self.values.get(key, 0) for way, key in ways.items()}
        return ", ".join(f"{count} wrong 8-byte words when {way}" for way, count in counts.items() if count)


def pairs(facts: Facts, sign: str = ">") -> Iterator[Pair]:
    """The measured pairs. sign: ">" for one direction, "<>" for both at once."""
    return (pair for found, pair in facts.once(_pairs) if found == sign)


def _pairs(facts: Facts) -> Iterator[tuple[str, Pair]]:
    """Each pair with its sign."""
    (run,) = facts.measured.runs(WORKLOAD)
    indices = [index_of(facts, device) for device in facts.cuda.devices]
    for name, values in run.values.items():
        if found := _named(name):
            one, sign, other = found
            yield sign, Pair(indices[one], indices[other], values)


@lru_cache(maxsize=4096)
def _named(name: str) -> tuple[int, str, int] | None:
    found = _NAME.fullmatch(name)
    return (int(found[1]), found[2], int(found[3])) if found else None
