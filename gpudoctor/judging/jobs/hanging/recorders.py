"""Where the ranks part, by the dumps of their flight recorders: the first collective that does not end in all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpudoctor.facts.job.recorded import Dump, Entry, Group
from gpudoctor.judging.jobs.hanging.standing import BEHIND, DIFFER, SHAPES, TOGETHER, Parting, apart, by_rank

SOURCE = "the flight recorder"
# Ranks pass different sizes to these on purpose.
UNEVEN = ("scatter", "gather", "all_to_all", "alltoall", "coalesced", "broadcast_object", "send", "recv")


def partings(dumps: Sequence[Dump]) -> Iterator[Parting]:
    """For each group of ranks in which a collective does not end."""
    by_group: dict[str, dict[int, tuple[Group, list[Entry]]]] = defaultdict(dict)
    for dump in dumps:
        for group in dump.groups:
            entries = [entry for entry in dump.entries if entry.group == group.name and not entry.p2p]
            by_group[group.name][dump.rank] = group, entries
    for name, ranks in by_group.items():
        if found := _parting(name, ranks):
            yield found


def _parting(name: str, ranks: dict[int, tuple[Group, list[Entry]]]) -> Parting | None:
    pending = [entry for _, entries in ranks.values() for entry in entries if not entry.done]
    if not pending:
        return None
    sequence = min(entry.sequence for entry in pending)
    here = {rank: entry for rank, (_, entries) in ranks.items() for entry in entries if entry.sequence == sequence}
    # a rank whose buffer no longer holds this operation has passed it; one that never entered it is behind
    behind = tuple(sorted(rank for rank, (group, _) in ranks.items() if rank not in here and group.entered < sequence))
    members = {rank for group, _ in ranks.values() for rank in group.ranks}
    absent = tuple(sorted(members - ranks.keys())) if len(ranks) > 1 else ()
    operations = {rank: entry.operation for rank, entry in here.items()}
    operation, common, odd = apart(operations)
    places = by_rank((rank, _line(entry)) for rank, entry in here.items())
    details = {"sizes": [list(size) for size in here[common[0]].sizes], "types": list(here[common[0]].types)}
    if absent:
        details["no_dump_of"] = list(absent)
    if odd:
        return Parting(DIFFER, operation, sequence, common, odd, operations[odd[0]], name, places, details, SOURCE)
    if behind:
        last = {rank: _line(entries[-1]) for rank, (_, entries) in ranks.items() if rank in behind and entries}
        return Parting(BEHIND, operation, sequence, common, behind, "", name, {**places, **last}, details, SOURCE)
    shapes = {rank: (entry.sizes, entry.types) for rank, entry in here.items()}
    if len(set(shapes.values())) > 1 and not any(part in operation for part in UNEVEN):
        _, common, odd = apart(shapes)
        mine, other = here[common[0]], here[odd[0]]
        details |= {"sizes": _shape(mine), "odd_sizes": _shape(other)}
        return Parting(SHAPES, operation, sequence, common, odd, operation, name, places, details, SOURCE)
    done = [rank for rank, entry in here.items() if entry.done]
    if done:  # it ended in these, so the others wait for their own GPU
        rest = tuple(sorted(rank for rank in here if rank not in done))
        return Parting(TOGETHER, operation, sequence, rest, (), "", name, places, {**details, "ended_on": sorted(done)}, SOURCE)
    if len(ranks) < 2:
        return None
    return Parting(TOGETHER, operation, sequence, tuple(sorted(here)), (), "", name, places, details, SOURCE)


def _shape(entry: Entry) -> str:
    return ", ".join(f"{list(size)} {kind}" for size, kind in zip(entry.sizes, entry.types or ("",) * 8, strict=False))


def _line(entry: Entry) -> str:
    frame = entry.own_frame
    return f"{frame.function} ({frame.place})" if frame else ""
