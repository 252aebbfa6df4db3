"""Where the ranks part, by what their watchdogs wrote into logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpudoctor.facts.job.recorded import Timeout
from gpudoctor.judging.jobs.hanging.standing import BEHIND, DIFFER, SHAPES, Parting, apart

SOURCE = "the watchdogs in the logs"


def partings(timeouts: Sequence[Timeout]) -> Iterator[Parting]:
    """Each group of ranks whose watchdogs gave up."""
    by_group: dict[str, dict[int, Timeout]] = defaultdict(dict)
    entered: dict[int, int] = {}
    for timeout in timeouts:
        if timeout.operation:
            by_group[timeout.group].setdefault(timeout.rank, timeout)
        elif timeout.entered >= 0:
            entered[timeout.rank] = timeout.entered
    for group, ranks in by_group.items():
        yield _parting(group, ranks, entered)


def _parting(group: str, ranks: dict[int, Timeout], entered: dict[int, int]) -> Parting:
    first = min(timeout.sequence for timeout in ranks.values())
    here = {rank: timeout for rank, timeout in ranks.items() if timeout.sequence == first}
    operation, common, odd = apart({rank: timeout.operation for rank, timeout in here.items()})
    details = {"files": sorted({timeout.file for timeout in ranks.values()})[:4]}
    name = operation.lower()
    if odd:
        return Parting(DIFFER, name, first, common, odd, here[odd[0]].operation.lower(), group, {}, details, SOURCE)
    _, same, uneven = apart({rank: timeout.elements for rank, timeout in here.items()})
    if uneven and name in ("allreduce", "broadcast", "reduce"):
        sizes = {"elements": here[same[0]].elements, "odd_elements": here[uneven[0]].elements}
        return Parting(SHAPES, name, first, same, uneven, name, group, {}, {**details, **sizes}, SOURCE)
    # ranks whose watchdogs gave up on a later operation have passed this one: those that are silent did not enter it
    missing = tuple(rank for rank in range(max(ranks) + 1) if rank not in ranks)
    behind = tuple(sorted({rank for rank in missing if entered.get(rank, -1) < first}))
    return Parting(BEHIND, name, first, tuple(sorted(here)), behind, "", group, {}, details, SOURCE)
