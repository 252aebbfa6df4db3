"""From the waits of all processes to the ones that hold up the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpudoctor.facts.job.stuck import Look, Process
from gpudoctor.judging.jobs.hanging import ras, recorders, stacks, waiting, watchdogs
from gpudoctor.judging.jobs.hanging.problems import BY_KIND, ENDLESS_KERNEL
from gpudoctor.judging.jobs.hanging.standing import BEHIND, TOGETHER, Parting
from gpudoctor.judging.jobs.hanging.waiting import Wait
from gpudoctor.model import Confidence, Finding

# Waits for others, which say nothing about who holds them up.
PASSIVE = {"collective", "store", "loader", "child", "pipe-read", "local-peer", "gpu", "sleep", "polls", "unknown"}
UNSURE = {"spins", "peer", "lock", "fork-lock"}
ACTIVE_WHEN_WAITED_FOR = {"file-lock", "pipe-full"}
MOST = 6


def culprits(look: Look) -> Iterator[tuple[Process, Wait]]:
    """The processes whose own wait explains why the program does not move; those that wait for another one are left out."""
    waits = {process.pid: waiting.of(look, process) for process in look.processes}
    for process in look.processes:
        wait = waits[process.pid]
        if wait is None or (wait.kind in PASSIVE and not _is_silent_peer(wait, waits)):
            continue
        if wait.kind == "ended" and not _is_missed(look, process, waits):
            continue
        if wait.kind == "pipe-silent" and any(child.is_gone for child in look.children(process.pid)):
            continue
        if wait.kind == "peer" and look.ranks and process not in look.ranks:
            continue
        if wait.kind not in ACTIVE_WHEN_WAITED_FOR or not _explained(wait, waits):
            yield process, wait


def _is_missed(look: Look, process: Process, waits: dict[int, Wait | None]) -> bool:
    """A process that has ended matters if it is a rank, or if its parent stands still and does not collect it."""
    wait = waits.get(process.parent)
    return process.rank >= 0 or (wait is not None and wait.kind not in ("sleep", "stopped", "frozen", "traced"))


def _is_silent_peer(wait: Wait, waits: dict[int, Wait | None]) -> bool:
    """It waits for a process of the program that is not held up by anything known."""
    others = [waits.get(pid) for pid in wait.toward]
    return wait.kind == "local-peer" and any(other is not None and other.kind in ("sleep", "unknown") for other in others)


def _explained(wait: Wait, waits: dict[int, Wait | None]) -> bool:
    """Whether the process that it waits for is itself held up by something else."""
    held = [waits.get(pid) for pid in wait.toward]
    return any(other is not None and other.kind not in PASSIVE for other in held)


def of_processes(look: Look) -> Iterator[Finding]:
    for process, wait in list(culprits(look))[:MOST]:
        values = {**wait.evidence, "pid": process.pid}
        if wait.awaited and wait.awaited.fd >= 0:
            values["descriptor"] = wait.awaited.fd
        sure = Confidence.LIKELY if wait.kind in UNSURE else Confidence.CONFIRMED
        parent = look.process(process.parent) if wait.kind == "ended" else None
        waits_on = waiting.of(look, parent) if parent and not parent.launcher else None
        still = f"; {parent.shown} {waits_on.words}" if parent and waits_on else ""
        yield BY_KIND[wait.kind].found(f"{process.shown} {wait.words}{still}", values, confidence=sure)


def of_gpus(look: Look, odd: Sequence[int] = ()) -> Iterator[Finding]:
    """A process that waits for its GPU, which works without pause, while no collective of several ranks explains that.

    odd: the ranks that did not enter the collective in which the others wait.
    """
    for process in look.processes:
        wait = waiting.of(look, process)
        if not wait or wait.kind != "gpu" or (process.world > 1 and process.rank not in odd):
            continue
        full = [gpu for gpu in look.gpus if gpu.is_full and gpu.is_used_by(process)]
        for gpu in full:
            words = f"{process.shown} {wait.words}, and GPU {gpu.index} was busy all of {look.seconds:.0f} s"
            values = {**wait.evidence, "pid": process.pid, "watts": gpu.watts[-1] if gpu.watts else 0}
            yield ENDLESS_KERNEL.found(words, values, gpu=gpu.index, confidence=Confidence.LIKELY)


def partings(look: Look) -> list[Parting]:
    """Where ranks part: by dumps, NCCL's counts or watchdogs; without them, by the stacks of the ranks on this machine."""
    if look.processes and ras.grows(look.ras):
        return []
    sources = (
        list(recorders.partings(look.dumps)),
        list(watchdogs.partings(look.timeouts)),
        list(ras.partings(look.ras)),
        list(_by_stacks(look)),
    )
    parted = ([one for one in found if one.kind != TOGETHER] for found in sources)
    found = next(filter(None, parted), None) or _together(look, sources)
    return [replace(one, places=one.places or places(look)) for one in found]


def _together(look: Look, sources: Sequence[list[Parting]]) -> list[Parting]:
    """The same collective in all ranks is a fault only if they stand still in it, or a recorder says that it did not end."""
    of_recorders, _, of_nccl, of_stacks = sources
    waits = [waiting.of(look, process) for process in look.ranks]
    still = bool(waits) and all(wait is not None and wait.kind in ("collective", "gpu") for wait in waits)
    return of_recorders[:1] or (of_nccl[:1] or of_stacks[:1] if still else [])


def _by_stacks(look: Look) -> Iterator[Parting]:
    """Some ranks are in a collective, and others are not, or in another one."""
    ranks = look.ranks
    waits = {process.rank: waiting.of(look, process) for process in ranks}
    inside = {rank: wait.evidence["operation"] for rank, wait in waits.items() if wait and wait.kind == "collective"}
    if not inside:
        return
    outside = tuple(process.rank for process in ranks if process.rank not in inside)
    operation = inside[min(inside)]
    different = tuple(rank for rank in inside if inside[rank] != operation)
    same = tuple(rank for rank in inside if rank not in different)
    if different:
        yield Parting("differ", operation, -1, same, different, inside[different[0]], "", places(look), {}, "the stacks")
    elif outside:
        yield Parting(BEHIND, operation, -1, same, outside, "", "", places(look), {}, "the stacks")
    elif len(inside) == ranks[0].world:
        lines = {rank: place for rank, place in places(look).items() if place}
        if len(set(lines.values())) > 1:
            yield Parting("differ", operation, -1, same[:1], same[1:], operation, "", lines, {}, "the stacks")
        else:
            yield Parting(TOGETHER, operation, -1, same, (), "", "", lines, {}, "the stacks")


def places(look: Look) -> dict[int, str]:
    """Rank -> where its main thread is."""
    return {process.rank: stacks.shown(process.main) for process in look.ranks if process.main.frames}


def absent(look: Look) -> tuple[int, ...]:
    """The local ranks that should run as well, as torchrun and mpirun count them."""
    ranks = look.ranks
    size = max((process.local_world for process in ranks), default=-1)
    known = {process.local_rank for process in ranks if not process.is_gone}
    first = min((process.rank - process.local_rank for process in ranks), default=0)
    return tuple(first + number for number in range(size) if number not in known) if size > 1 and known - {-1} else ()
