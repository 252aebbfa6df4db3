"""What the nodes of a collective report, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpudoctor.fleet.confirming import Group, Outcome
from gpudoctor.plain import plain
from gpudoctor.worker.measuring import nccl_log

JUDGED = "all-reduce"
MOST_ROWS, MOST_WORDS = 10_000, 300


class Adapter(msgspec.Struct):
    name: str
    kind: str
    active: bool
    rate: str | None


class Row(msgspec.Struct):
    """A figure of a rank; it also says other things, which have no bandwidth. turn: numbers of the pass and of the group."""

    what: str = ""
    bytes: int = 0
    seconds: float = 0.0
    gb_per_s: float | None = None
    wrong: bool = False
    turn: tuple[int, int] | None = None


class Told(msgspec.Struct):
    """One line of collective_node."""

    hello: list[int] | None = None
    rank: Row | None = None
    done: int | None = None
    words: str = ""
    nccl: list[str] = []
    adapters: list[Adapter] = []


@dataclass
class Said:
    """What one node reported. code: None if its session did not end."""

    hello: bool = False
    ranks: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None
    words: str = ""
    nccl: list[str] = field(default_factory=list)
    adapters: list[dict[str, Any]] = field(default_factory=list)

    def keep(self, told: Told) -> None:
        if told.hello is not None:
            self.hello, self.words = True, ""
        elif told.rank is not None and told.rank.gb_per_s is not None and len(self.ranks) < MOST_ROWS:
            self.ranks.append(msgspec.to_builtins(told.rank))
        elif told.done is not None and self.code is None:
            self.code, self.words = told.done, plain(told.words)[:MOST_WORDS]
            self.nccl = [plain(line) for line in told.nccl[:MOST_ROWS]]
            self.adapters = [msgspec.to_builtins(each) for each in told.adapters[:MOST_ROWS]]


def outcome(said: Mapping[str, Said], complete: int) -> Outcome:
    """The bandwidth of the largest all-reduce. A wrong result is a failure; a session that only ends late is none.

    complete: the number of figures that a session reports.
    """
    rows = [row for each in said.values() for row in each.ranks if "gb_per_s" in row]
    wrong = next((row["what"] for row in rows if row["wrong"]), "")
    if wrong:
        return Outcome(None, f"wrong result of {wrong}")
    failed = [each.words for each in said.values() if each.code != 0]
    if failed and len(rows) < complete:
        telling = [words for words in failed if words and "time limit" not in words]
        return Outcome(None, next(iter([*telling, *failed])) or "ended early")
    judged = [row for row in rows if row["what"] == JUDGED]
    largest = max((row["bytes"] for row in judged), default=0)
    return Outcome(min(row["gb_per_s"] for row in judged if row["bytes"] == largest)) if judged else Outcome(None, "no result")


def passes(said: Mapping[str, Said], groups: Sequence[Group]) -> list[dict[Group, float]]:
    """What groups reached in turn, for passes that have a figure for each; nothing if the session failed."""
    if any(each.code != 0 for each in said.values()):
        return []
    found: dict[int, dict[Group, float]] = {}
    for row in (row for each in said.values() for row in each.ranks):
        number, place = row["turn"] or (-1, -1)
        if number >= 0 and 0 <= place < len(groups):
            found.setdefault(number, {})[groups[place]] = row["gb_per_s"]
    return [each for _, each in sorted(found.items()) if len(each) == len(groups)]


def transports(said: Mapping[str, Said]) -> dict[str, Any]:
    """What NCCL reported of its connections, on all nodes together."""
    lines = [line for each in said.values() for line in each.nccl]
    found = nccl_log.parsed("\n".join(lines))
    if any("MNNVL 1" in line for line in lines):
        found["mnnvl"] = True
    return found


def doubts(said: Mapping[str, Said]) -> list[str]:
    """What does not fit: the transport and the adapters that are there, and adapters of one node and those of the others."""
    found = []
    net = {name for name in transports(said).get("connections", {}) if name.startswith("NET/")}
    ports = {node: _ports(each) for node, each in said.items()}
    active = [node for node, known in ports.items() if any(known.values())]
    if len(active) == len(said) and any("Socket" in name for name in net):
        found.append(
            "NCCL uses TCP (NET/Socket), although every node has an active InfiniBand or RoCE port: "
            "gpudoctor explain nccl-no-ib-falls-back-socket"
        )
    for name in sorted({name for known in ports.values() for name in known}):
        down = [node for node, known in ports.items() if not known.get(name)]
        if down and len(down) * 2 < len(ports):
            found.append(f"{', '.join(down)}: {name} is not active, as it is on the other nodes")
    return found


def _ports(said: Said) -> dict[str, bool]:
    return {str(each["name"]): bool(each["active"]) for each in said.adapters if each.get("kind") != "net"}
