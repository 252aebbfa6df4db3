"""What a collective over many nodes showed, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from gpudoctor.fleet.accusing import Found
from gpudoctor.fleet.confirming import Group, Outcome
from gpudoctor.fleet.nodesets import folded
from gpudoctor.fleet.said import doubts, transports

if TYPE_CHECKING:
    from gpudoctor.fleet.collective import Result

SCHEMA = "gpudoctor.collective/1"
_AGAIN = (
    "Run it again when nothing else runs on these nodes and their network, with larger --sizes, or name with --expect what an "
    "all-reduce should reach."
)


class Row(msgspec.Struct):
    """One collective over all nodes. bytes: of each rank. seconds: of one run. gb_per_s: bus bandwidth. wrong: its result was."""

    what: str
    bytes: int
    seconds: float
    gb_per_s: float
    wrong: bool


class Ran(msgspec.Struct):
    """The largest all-reduce of a group of nodes. gb_per_s: null if it failed; words: why."""

    nodes: list[str]
    gb_per_s: float | None
    words: str


class Repeated(msgspec.Struct):
    """What was measured again in turn: groups with one suspect, and groups without any. is_bad: the first are slow or fail each
    time. limit: below it, a group of this round is slow. times: how often each was measured; gb_per_s is the median."""

    suspects: list[Ran]
    rest: list[Ran]
    limit: float
    is_bad: bool
    times: int


class Unsure(msgspec.Struct):
    """Nodes of which what decided did not repeat, and what was seen."""

    nodes: list[str]
    why: str


class Collective(msgspec.Struct):
    """The verdict on a collective over many nodes.

    status: "healthy"; "fault" (silent, named, likely or between has nodes, or all together fail); "unsure" (what decided did not
    repeat); "not-run" (fewer than two nodes could start). silent: node -> why torch did not start there. figures: of all nodes.
    transports: what NCCL reported of its connections. doubts: what does not fit the adapters that are there. named: node -> why
    it is at fault. likely: one of these is, and no test can tell which. between: two sets that are fast alone, but not together.
    noise: nodes that were slow once, while others vary as much. rounds: group by group. repeated: the last round, for each
    suspect.
    """

    schema: str
    status: str
    nodes: list[str]
    silent: dict[str, str]
    figures: list[Row]
    transports: dict[str, Any]
    doubts: list[str]
    named: dict[str, str]
    likely: list[str]
    between: list[list[str]]
    unsure: list[Unsure]
    noise: list[Unsure]
    rounds: list[list[Ran]]
    repeated: list[Repeated]


def schema() -> dict[str, Any]:
    made = msgspec.json.schema(Collective)
    kind = made["$defs"]["Collective"]["properties"]
    kind["schema"] = {"const": SCHEMA}
    kind["status"] = {"enum": ["healthy", "fault", "unsure", "not-run"]}
    return made


def status(found: Result) -> str:
    judged = found.found
    if judged is None:
        return "not-run"
    if judged.named or judged.likely or judged.between or found.silent or (_fails(judged) and not judged.unsure):
        return "fault"
    return "unsure" if judged.unsure else "healthy"


def as_json(found: Result) -> str:
    judged = found.found or Found()
    told = Collective(
        SCHEMA,
        status(found),
        list(found.nodes),
        found.silent,
        msgspec.convert(found.figures, list[Row]),
        transports(found.said),
        doubts(found.said),
        judged.named,
        list(judged.likely),
        [list(group) for group in judged.between or ()],
        [Unsure(list(group), why) for group, why in judged.unsure.items()],
        [Unsure(list(group), why) for group, why in judged.noise.items()],
        [[_ran(*each) for each in done.items()] for done in judged.rounds],
        [
            Repeated(
                [_ran(*one) for one in each.suspects], [_ran(*one) for one in each.rest], each.limit, each.is_bad, each.times
            )
            for each in judged.repeated
        ],
    )
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n"


def _ran(group: Group, outcome: Outcome) -> Ran:
    return Ran(list(group), outcome.figure, outcome.words)


def _fails(judged: Found) -> bool:
    """Whether the whole set fails, even if no node could be named."""
    return next(iter(judged.rounds[0].values())).figure is None


def as_text(found: Result) -> Iterator[str]:
    for node, why in found.silent.items():
        yield f"{node}: torch does not start: {why}"
    judged = found.found
    if judged is None:
        yield "Fewer than two nodes could start torch."
        return
    yield from _of_all(found, judged)
    yield from _of_halves(judged)


def _of_all(found: Result, judged: Found) -> Iterator[str]:
    (whole, reached), *_ = judged.rounds[0].items()
    yield f"{folded(whole)}: " + (f"fails: {reached.words}" if reached.figure is None else "works")
    for row in found.figures:
        wrong = "  WRONG RESULT" if row["wrong"] else ""
        yield f"  {row['what']:<11} {row['bytes'] / (1 << 20):>9.2f} MiB {row['gb_per_s']:>9.2f} GB/s{wrong}"
    used = transports(found.said)
    if connections := used.get("connections"):
        yield f"  transport: {', '.join(f'{name} ({count})' for name, count in sorted(connections.items()))}"
    if used.get("nvls_channels") or used.get("mnnvl"):
        yield "  transport: NVLS" * bool(used.get("nvls_channels")) + "  transport: MNNVL" * bool(used.get("mnnvl"))
    yield from doubts(found.said)


def _of_halves(judged: Found) -> Iterator[str]:
    for number, done in enumerate(judged.rounds[1:], 2):
        for group, each in done.items():
            yield f"round {number}: {folded(group)}: " + (each.words if each.figure is None else f"{each.figure:.2f} GB/s")
    for repeated in judged.repeated:
        yield f"round {len(judged.rounds) + 1}: {folded(repeated.nodes)} {repeated.said} GB/s"
    for node, why in judged.named.items():
        yield f"{node} is at fault: {why}"
    if judged.likely:
        yield f"One of these is at fault, and no test can tell which: {folded(judged.likely)}"
    if judged.between:
        one, other = map(folded, judged.between)
        yield f"{one} and {other} are fast alone, but not together: look at the switches and cables between them."
    yield from _not_repeated(judged)
    if judged.is_healthy and _fails(judged):
        yield "Every group fails, so the cause is likely the same on all nodes. If it is the time limit, raise --timeout."
    if judged.is_healthy and not _fails(judged):
        yield "No node is slower than the others."


def _not_repeated(judged: Found) -> Iterator[str]:
    for group, why in judged.unsure.items():
        yield f"Not sure about {folded(group)}: {why}. It did not repeat. {_AGAIN}"
    for group, why in judged.noise.items():
        yield f"{folded(group)} was slow once, but not in turn with the others: {why}"
