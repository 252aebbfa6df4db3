"""Under full load for minutes, copies between the GPUs arrive undamaged.

What it means
Links between GPUs that work for a moment can fail when all of them carry data at once: a weak NVLink, a bad bridge, a switch
that gets hot.

How it is judged
gpudoctor burn sends a pattern from each GPU to its partner, on all GPUs at the same time, with every distance around the ring
by turns, and compares what arrives. One wrong word fails. Errors that the links corrected or replayed show in their counters: see
nvlink and errors-under-load.

Known exceptions
Without peer access the copies pass through the host's memory, and the fault can be there.

References
https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#peer-to-peer-memory-copy
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import burning
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip

WRONG = Problem(
    id="burn-wrong-peer-copies",
    title="Under load, copies between GPUs arrive damaged",
    why="What arrived differs from what was sent, and no error was reported. Jobs that exchange data between these GPUs "
    "can compute wrong results.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look("Show the errors of the NVLinks", "nvidia-smi nvlink -e"),
        Fix("Reseat the bridge or the card, or have the link tested, then repeat the test", verify="gpudoctor burn --links"),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    wrong: Counter[str] = Counter()
    for each in burning.burned(facts, burning.LINKS):
        for stretch in each.stretches:
            wrong.update({pair: count for pair, count in stretch.values["wrong_words"].items() if count})
    if wrong:
        pairs = ", ".join(f"{pair.replace('>', ' to ')}: {count} words" for pair, count in wrong.most_common(8))
        yield WRONG.found(f"wrong words of 8 bytes from GPU {pairs}", {"wrong": dict(wrong)}, partial=True)


def figures(facts: Facts) -> Iterator[Figure]:
    for each in burning.burned(facts, burning.LINKS):
        yield Figure("sustained copies between all GPUs", min(stretch.values["gb_per_s"] for stretch in each.stretches), "GB/s")


def summary(facts: Facts) -> str:
    found = burning.burned(facts, burning.LINKS)
    if not all(each.is_complete for each in found):
        raise Skip("the load was ended early; what arrived until then was correct", Skip.CUT_OFF)
    copies = sum(stretch.values["copies"] for each in found for stretch in each.stretches)
    return f"{copies} copies between GPUs arrived undamaged"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG,),
    needs=("cuda-context",),
    level="burn",
    workloads=(burning.LINKS,),
    figures=figures,
    tags=("hardware",),
)
