"""The collectives other than all-reduce, by size, as nccl-tests measures them. Every rank verifies what it receives."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Union

from gpudoctor.worker.measuring import nccl
from gpudoctor.worker.measuring.all_reduce import MIB, PATIENCE_SECONDS, ROW, SHARE_OF_FREE, name_of, rows, timed
from gpudoctor.worker.measuring.rank import Rank

SIZES = (MIB, 16 * MIB, 256 * MIB)
SMALL_BYTES = 8  # that each rank sends to each other one
BUFFERS = 2

Way = Union[nccl.Nccl, nccl.Torch]


class Operation(NamedTuple):
    """name: of the function of a way. sends, receives: whether the buffer holds a part for each rank.

    bus: the share of the bytes that has to pass the links, as a function of the number of ranks.
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """

    name: str
    sends_parts: bool
    receives_parts: bool
    bus: Callable[[int], float]


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


OPERATIONS = {
    "all-gather": Operation("all_gather", False, True, _others),
    "reduce-scatter": Operation("reduce_scatter", True, False, _others),
    "all-to-all": Operation("all_to_all", True, True, _others),
    "broadcast": Operation("broadcast", False, False, lambda ranks: 1.0),
    "send/recv": Operation("send_recv", False, False, lambda ranks: 1.0),
}


def measure(rank: Rank) -> None:
    """Stores "all-gather 8 B", "all-gather 1 MiB" …: {"bytes", "microseconds", "spread", "algorithm_gb_per_s", "bus_gb_per_s"},
    the last two not for the smallest; "collectives": {"library": NCCL's path, "" if torch had to be asked}; and for each rank
    "wrong_parts"."""
    way = nccl.of(rank) or nccl.Torch(rank)
    rank.bench.keep("collectives", library=way.path)
    most = rank.agreed(rank.free_bytes() // SHARE_OF_FREE // BUFFERS, "MIN")
    for name, operation in OPERATIONS.items():
        parts = rank.ranks if operation.sends_parts or operation.receives_parts else 1
        for size in (SMALL_BYTES * parts, *SIZES):
            if size > most or one_size(rank, way, name, size) * 4 > PATIENCE_SECONDS * 1e6:
                break


def one_size(rank: Rank, way: Way, name: str, size: int) -> int:
    """The microseconds of the slowest rank."""
    operation = OPERATIONS[name]
    is_small = size < MIB
    label = "%s %s" % (name, name_of(SMALL_BYTES if is_small else size))
    dtype = rank.torch.bfloat16 if rank.device.type == "cuda" else rank.torch.float32
    sent_parts, received_parts = (rank.ranks if has else 1 for has in (operation.sends_parts, operation.receives_parts))
    elements = size // dtype.itemsize // max(sent_parts, received_parts)  # of a part; whole rows of the pattern
    elements -= elements % min(ROW, elements)
    sent, received = (
        rank.torch.zeros(elements * parts, dtype=dtype, device=rank.device) for parts in (sent_parts, received_parts)
    )
    work = getattr(way, operation.name)(sent, received)
    wrong = wrong_elements(rank, name, work, sent, received)
    with rank.bench.section(label) as values:
        values.update(timed(rank, work), bytes=max(sent.nbytes, received.nbytes))
        if not is_small:
            values["algorithm_gb_per_s"] = values["bytes"] / values["microseconds"] / 1e3
            values["bus_gb_per_s"] = values["algorithm_gb_per_s"] * operation.bus(rank.ranks)
    wrong += wrong_elements(rank, name, work, sent, received)
    rank.keep(wrong_parts=dict(rank.own.get("wrong_parts", {}), **{label: wrong}))
    return rank.agreed(int(values["microseconds"]), "MAX")


def wrong_elements(rank: Rank, name: str, work: Callable[[], Any], sent: Any, received: Any) -> int:
    """Sends a pattern, and counts the elements received that are wrong."""
    sent_parts = rank.ranks if OPERATIONS[name].sends_parts else 1
    pattern = rows(rank, sent.numel() // sent_parts, sent.dtype)
    mine = pattern[rank.number]
    for number, part in enumerate(sent.chunk(sent_parts)):
        _lines(part, mine).copy_(mine.roll(number).expand_as(_lines(part, mine)))
    received.fill_(-1)
    if name == "broadcast" and rank.number == 0:
        received.copy_(sent)  # torch sends what it has in the buffer that the others receive into
    rank.barrier()
    work()
    rank.synchronize()
    wanted = expected(rank, name, pattern)
    wrong = [(_lines(part, row) != row).sum() for part, row in zip(received.chunk(len(wanted)), wanted)]
    return int(sum(wrong).item())


def expected(rank: Rank, name: str, pattern: List[Any]) -> List[Any]:
    """What each part of the received buffer repeats. Each rank rotates its pattern by the number of the part's receiver."""
    found: Dict[str, Callable[[], List[Any]]] = {
        "all-gather": lambda: pattern,
        "reduce-scatter": lambda: [sum(pattern).roll(rank.number)],
        "all-to-all": lambda: [row.roll(rank.number) for row in pattern],
        "broadcast": lambda: [pattern[0]],
        "send/recv": lambda: [pattern[(rank.number - 1) % rank.ranks]],
    }
    return found[name]()


def _lines(part: Any, row: Any) -> Any:
    return part.view(-1, row.numel())
