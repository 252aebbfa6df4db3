"""All ranks of the job are in the same collective, and it ends.

What it means
Every rank of a distributed job must call the same collectives in the same order with the same sizes. If one rank ends, leaves its
loop early, works longer than the others or calls another operation, all the others wait.

How it is judged
From whatever is there: NCCL's RAS socket says how many operations each rank launched, asked twice; dumps of PyTorch's flight
recorder say what each rank entered, from which line and with which sizes; watchdogs in logs say which operation timed out in
which ranks; the stacks of the ranks on this machine say which of them are inside a collective. Ranks are compared at the first
operation that does not end everywhere.

Known exceptions
A rank on another machine is known only by RAS, dumps and logs. RAS counts launches, so ranks that run ahead of each other for an
instant look alike; counts that grow between the two answers are not judged. Collectives in which ranks pass different sizes on
purpose (scatter, gather, all_to_all) are not compared by size.

References
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.job.stuck import Look
from gpudoctor.judging.jobs.hanging import problems, ras, stacks, verdict, waiting, watchdogs
from gpudoctor.judging.jobs.hanging.standing import BEHIND, DIFFER, SHAPES, TOGETHER, Parting, words
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip

RECORDER = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html"
RECORD = Fix(
    "Next time: keep what each rank called, and dump it when a collective times out (PyTorch)",
    "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=/tmp/nccl_trace_rank_",
    where="shell",
)
READ = Fix(
    "After that: compare the dumps of all ranks, copied into one folder", "gpudoctor hang /tmp/nccl_trace_rank_*", kind="manual"
)
SAME_BATCHES = Fix("Give each rank the same number of batches: DistributedSampler(drop_last=True), or with Join([model])")
LEFT = Problem(
    id="hang-rank-behind",
    title="A rank does not enter the collective in which the others wait",
    why="It left its loop early, works longer than the others, or waits for something else. A collective ends only when "
    "all ranks have entered it. A loop with fewer batches, an early return or exception, and work that only one rank "
    "does (validation, saving a checkpoint) are the usual causes.",
    action=Action.FIX_CONFIG,
    fixes=(
        SAME_BATCHES,
        Fix('Leave the loop on all ranks together: all_reduce a "done" flag and stop when it is set'),
        Fix("If the rank only works longer: raise the limit with init_process_group(timeout=timedelta(hours=1))"),
        RECORD,
        READ,
    ),
    references=(RECORDER, "https://docs.pytorch.org/docs/stable/distributed.html"),
)
OTHER = Problem(
    id="hang-collectives-differ",
    title="The ranks wait in different collectives",
    why="A collective pairs the calls of all ranks in order. If one rank calls another operation, or the same ones in "
    'another order, each waits for partners that never come. An "if rank == 0" around a collective, parameters that '
    "only some ranks use, and two process groups used in different order are the usual causes.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Compare the two lines above: every rank has to call the same collectives in the same order"),
        Fix(
            "Let PyTorch check each collective and name the ranks that differ (slow)",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc-per-node=gpu train.py",
        ),
        RECORD,
        READ,
    ),
    references=(RECORDER, "https://docs.pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-applications"),
)
SIZES = Problem(
    id="hang-collective-shapes-differ",
    title="The ranks entered a collective with tensors of different size or type",
    why="The ranks must pass the same number of elements of the same type. NCCL does not check that: it waits for the "
    "missing data, or returns wrong values. A last batch of different length, and models that differ between ranks, "
    "are the usual causes.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Drop or pad the last batch (drop_last=True), or exchange the sizes first and use all_gather with lists"),
        Fix(
            "Let PyTorch check the sizes in each collective (slow)",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc-per-node=gpu train.py",
        ),
        RECORD,
    ),
    references=(RECORDER,),
)
STUCK = Problem(
    id="hang-collective-stuck",
    title="All ranks entered the same collective, but it does not end",
    why="No rank is missing. A kernel that was queued before the collective does not end, a GPU or link failed, or the "
    "ranks cannot exchange data: direct access between GPUs that the IOMMU or ACS breaks, or a network that drops "
    "packets.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Read how NCCL connects the ranks, and its first warning", "NCCL_DEBUG=INFO torchrun --nproc-per-node=gpu train.py"),
        Fix(
            "Check whether direct access between the GPUs is the cause: it works without it",
            "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=gpu train.py",
        ),
        Fix(
            "Check the GPUs and links without your program, once it has ended", "gpudoctor check --only all-reduce,peer-transfers"
        ),
        Fix("Check whether an earlier kernel hangs: wait for the GPU (torch.cuda.synchronize()) before the collective"),
        RECORD,
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
)
GONE = Problem(
    id="hang-rank-missing",
    title="A rank of the job does not run or does not answer",
    why="The other ranks wait for it in a collective or at the start. It crashed, was killed, ended early, never started, "
    "or its node cannot be reached.",
    action=Action.RESTART_APP,
    fixes=(
        Fix(
            "Find its first error: keep the output of each rank apart",
            "torchrun --nproc-per-node=gpu --redirects=3 --log-dir=logs train.py",
        ),
        Fix(
            "On its node: check whether the kernel killed it or its GPU failed",
            "sudo dmesg -T | grep -iE 'xid|killed process|oom-kill|segfault' | tail -n 20",
            needs=("root",),
            kind="read",
        ),
        Fix("Check that the launcher runs on every node with the same --nnodes, --rdzv-id and --rdzv-endpoint"),
        Fix(
            "Check on each node whether the address of the store resolves and responds",
            'getent hosts "$MASTER_ADDR"; timeout 5 bash -c "</dev/tcp/$MASTER_ADDR/${MASTER_PORT:-29500}" && echo reachable',
            kind="read",
        ),
    ),
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
)
BY_KIND = {BEHIND: LEFT, DIFFER: OTHER, SHAPES: SIZES}


def judge(facts: Facts) -> Iterator[Finding]:
    look = facts.job.stuck.look
    waits = any(map(waiting.is_at_start, look.processes))
    if not (waits or look.ranks or look.dumps or look.timeouts or any(not answer.failed for answer in look.ras)):
        raise Skip("no ranks of a distributed job were seen")
    still = [process for process in look.ranks if waiting.moves(look, process) is False]
    unreachable = ras.gone(look.ras)
    lacking = dict.fromkeys((*(rank for rank in verdict.absent(look) if still), *unreachable))
    causes = tuple(finding.problem.id for finding in facts.found.get("hang-processes", ()))
    if lacking:
        yield _missing(look, tuple(lacking), unreachable, causes)
    for parting in verdict.partings(look)[:3]:
        finding = _of(look, parting)
        yield finding if not lacking else _because(finding, GONE.id)
    if not lacking and (store := _at_start(look)):
        yield GONE.found(store, {"waiting": [process.rank for process in look.ranks]}, confidence=Confidence.LIKELY)


def _missing(look: Look, ranks: tuple[int, ...], unreachable: Mapping[int, Any], causes: tuple[str, ...]) -> Finding:
    dead = [rank for rank in ranks if unreachable.get(rank, {}).get("dead")]
    how = "does not run on this machine" if len(ranks) == 1 else "do not run on this machine"
    if any(rank in unreachable and _runs(look, rank) for rank in ranks):
        how = "runs, but does not answer NCCL" if len(ranks) == 1 else "do not answer NCCL"
    evidence: dict[str, Any] = {
        "ranks": list(ranks),
        "waiting": [process.rank for process in look.ranks if process.rank not in ranks],
    }
    if dead:
        evidence["dead"] = dead
    places = {str(rank): place for rank, place in verdict.places(look).items() if rank not in ranks}
    if places:
        evidence["others_at"] = places
    return _caused(GONE.found(f"{words(ranks)} {how}", evidence), causes)


def _runs(look: Look, rank: int) -> bool:
    return any(process.rank == rank and not process.is_gone for process in look.ranks)


def _of(look: Look, parting: Parting) -> Finding:
    problem = BY_KIND.get(parting.kind, STUCK)
    numbered = f" number {parting.sequence}" if parting.sequence >= 0 else ""
    name = f"{parting.operation}{numbered}" if parting.operation else f"operation{numbered}"
    at = {str(rank): place for rank, place in parting.places.items() if place}
    evidence = {"operation": parting.operation, "source": parting.source, **parting.details}
    if parting.sequence >= 0:
        evidence["sequence"] = parting.sequence
    if at:
        evidence["places"] = at
    sure = Confidence.LIKELY if _is_unsure(parting) else Confidence.CONFIRMED
    finding = problem.found(_told(look, parting, name), evidence, confidence=sure)
    return _caused(finding, _own_causes(look, parting))


def _is_unsure(parting: Parting) -> bool:
    """Stacks say nothing about what a rank queued before; a rank whose log was not given is silent as well."""
    return (
        parting.source == "the stacks"
        or parting.kind == TOGETHER
        or (parting.source == watchdogs.SOURCE and parting.kind == BEHIND)
    )


def _told(look: Look, parting: Parting, name: str) -> str:
    others = words(parting.waiting) if parting.waiting else "the ranks"
    odd = words(parting.odd) if parting.odd else ""
    own, other = _place(parting, parting.waiting), _place(parting, parting.odd)
    if parting.kind == BEHIND:
        if not odd:
            return f"{others} {_verb(parting.waiting, 'waits', 'wait')} in {name}{own}; which rank is missing is not known"
        doing = _doing(look, parting.odd) or other
        return f"{others} {_verb(parting.waiting, 'waits', 'wait')} in {name}{own}; {odd} did not enter it{doing}"
    if parting.kind == DIFFER:
        verb = _verb(parting.odd, "is", "are")
        return (
            f"{others} {_verb(parting.waiting, 'is', 'are')} in {name}{own}, but {odd} {verb} in {parting.odd_operation}{other}"
        )
    if parting.kind == SHAPES:
        mine = parting.details.get("sizes", parting.details.get("elements"))
        theirs = parting.details.get("odd_sizes", parting.details.get("odd_elements"))
        return f"{others} entered {name} with {mine}{own}, {odd} with {theirs}{other}"
    ended = parting.details.get("ended_on")
    on = f", which ended on {words(ended)}, but not on {others}" if ended else ", and it does not end"
    return f"all ranks entered {name}{own}{on}"


def _verb(ranks: Sequence[int], one: str, several: str) -> str:
    return one if len(ranks) == 1 else several


def _place(parting: Parting, ranks: Sequence[int]) -> str:
    place = next((parting.places[rank] for rank in ranks if parting.places.get(rank)), "")
    return f" at {place}" if place else ""


def _doing(look: Look, ranks: Sequence[int]) -> str:
    process = next((process for process in look.ranks if process.rank in ranks), None)
    if not process:
        return ""
    if wait := waiting.of(look, process):
        return f": it {wait.words}"
    place = stacks.shown(process.main)
    return f": it works{f' at {place}' if place else ''}" if process.moves else ""


def _own_causes(look: Look, parting: Parting) -> tuple[str, ...]:
    """The problems of the ranks that are behind, and of the processes that those wait for."""
    ids = []
    for process in look.ranks:
        if parting.kind == DIFFER or parting.kind == SHAPES:
            break
        if process.rank in parting.odd or not parting.odd:
            for _, wait in waiting.chain(look, process):
                if wait and wait.kind in problems.BY_KIND:
                    ids.append(problems.BY_KIND[wait.kind].id)
                if wait and wait.kind == "gpu":
                    ids.append(problems.ENDLESS_KERNEL.id)
    return tuple(dict.fromkeys(ids))


def _at_start(look: Look) -> str:
    at_start = [process.rank for process in look.ranks if waiting.is_at_start(process)]
    here = len(look.ranks)
    if not here:
        launcher = next(filter(waiting.is_at_start, look.processes), None)
        return f"{launcher.shown} waits for the launchers of the other nodes at the rendezvous" if launcher else ""
    world = max(process.world for process in look.ranks)
    if not at_start or (len(at_start) == here == world):
        return ""
    others = f"{here} of {world} ranks run on this machine" if here < world else "the others are past it"
    store = look.ranks[0].master and f" (store {look.ranks[0].master})"
    return f"{words(at_start)} {_verb(at_start, 'waits', 'wait')} for the other ranks at the start{store}; {others}"


def _caused(finding: Finding, causes: tuple[str, ...]) -> Finding:
    return replace(finding, causes=(*finding.causes, *causes))


def _because(finding: Finding, cause: str) -> Finding:
    return _caused(finding, (cause,))


def summary(facts: Facts) -> str:
    look = facts.job.stuck.look
    ranks = [process.rank for process in look.ranks] or [dump.rank for dump in look.dumps]
    return f"{words(ranks)}: no collective that does not end" if ranks else "no collective that does not end"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(LEFT, OTHER, SIZES, STUCK, GONE),
    after=("hang-processes",),
    tags=("multi-gpu", "nccl"),
)
