"""Under full load for minutes, sums over all GPUs (all-reduce over NCCL) are correct.

What it means
In training, NCCL sums gradients while the GPUs compute. Then the links, the memory and the multiprocessors are all busy, the
power draw is highest, and faults show that a test of one part at a time does not find.

How it is judged
gpudoctor burn starts one rank per GPU. On one stream each adds the same numbers over all GPUs again and again, on another it
multiplies matrices. Every element of every sum is compared with the exact sum, and every product bit for bit with the first
one. One wrong element fails.

Known exceptions
The sums need PyTorch with NCCL. The speed is shown and not judged, since the products take their share of the multiprocessors
and the power.

References
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.join import index_of
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import burning
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip

WRONG = Problem(
    id="burn-wrong-sums",
    title="Under load, sums over the GPUs are wrong",
    why="NCCL reported no error, but the result is not the sum of what the GPUs sent, or a product changed meanwhile. Training "
    "on these GPUs computes wrong models.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look("Check whether copies and sums are wrong without load, too", "gpudoctor check --only peer-transfers,all-reduce"),
        look("Show memory and link errors", "nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink -e"),
        Fix("Stop using the GPU with the most wrong sums, and repeat the test without it", verify="gpudoctor burn --links"),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    wrong: Counter[str] = Counter()
    for each in burning.burned(facts, burning.COLLECTIVES):
        for stretch in each.stretches:
            wrong.update({gpu: count for gpu, count in stretch.values["wrong_words"].items() if count})
    if wrong:
        counts = {index_of(facts, facts.cuda.devices[int(gpu)]): count for gpu, count in wrong.most_common()}
        gpus = ", ".join(f"GPU {gpu}: {count} wrong elements" for gpu, count in list(counts.items())[:8])
        evidence = {"wrong": {str(gpu): count for gpu, count in counts.items()}}
        finding = WRONG.found(gpus, evidence, next(iter(counts)) if len(counts) == 1 else None, partial=True)
        yield replace(finding, causes=("burn-wrong-peer-copies", "burn-wrong-result"))


def figures(facts: Facts) -> Iterator[Figure]:
    for each in burning.burned(facts, burning.COLLECTIVES):
        speeds = [stretch.values["bus_gb_per_s"] for stretch in each.stretches]
        yield Figure("sustained all-reduce with products, bus bandwidth", min(speeds), "GB/s")
        rates = [stretch.values["tflops"] for stretch in each.stretches if "tflops" in stretch.values]
        if rates:
            yield Figure("sustained products with all-reduce", min(rates), "TFLOP/s")


def summary(facts: Facts) -> str:
    found = burning.burned(facts, burning.COLLECTIVES)
    if not all(each.is_complete for each in found):
        raise Skip("the load was ended early; all sums until then were correct", Skip.CUT_OFF)
    return f"{sum(stretch.values['sums'] for each in found for stretch in each.stretches)} sums over all GPUs were correct"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG,),
    needs=("cuda-context",),
    level="burn",
    workloads=(burning.COLLECTIVES,),
    figures=figures,
    tags=("nccl",),
)
