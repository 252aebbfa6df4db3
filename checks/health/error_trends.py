"""Error counters rise no faster than usual since the baseline was saved.

What it means
A single look at a counter does not show whether its errors are old. Their rate does: a link that recovers ten times a day, or
memory that corrects hundreds of errors an hour, is failing, although it still works.

How it is judged
Compares each GPU's counters with those that were saved with its baseline: ECC errors, remapped rows, PCIe replays and errors,
NVLink errors. After a reboot, counters that begin again with the driver are counted since the boot. It warns for each
uncorrectable memory error, fatal PCIe error and failed NVLink recovery, and for more than 100 corrected memory errors an hour, 8
PCIe replays a minute, 100 NVLink CRC errors a second or one NVLink recovery a day. The limits of replays and CRC errors are those
of DCGM.

Known exceptions
The rate is the mean of the whole time, so errors that began yesterday are diluted in a baseline of last year: save a newer one. A
reset of the GPU sets counters to zero; what was counted since is a lower bound.

References
https://github.com/NVIDIA/DCGM
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts, counters
from gpudoctor.facts.counters import Counters
from gpudoctor.fixes.common import look
from gpudoctor.judging import trends
from gpudoctor.judging.trends import Rate
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

RISING = Problem(
    id="error-counters-rise",
    title="Error counters of a GPU rise faster than usual",
    why="Errors that are corrected or repeated cost little each. Many of them mean that memory, a link or a slot is failing.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Show the counters of memory and PCIe", "nvidia-smi -q -i <address> -d ECC,ROW_REMAPPER"),
        look("Show the error counters of the NVLinks", "nvidia-smi nvlink -e"),
        Fix("Reseat the board, or have the GPU, the slot or the link tested, when the machine is free", on=("physical",)),
    ),
    references=("https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",),
)

CAUSES = ("ecc", "row-remapping", "pcie-errors", "nvlink")
"""The checks that judge the counts without their age."""


def judge(facts: Facts) -> Iterator[Finding]:
    for gpu in facts.nvml.reachable.values():
        high = [rate for rate in found(facts) if rate.gpu == gpu.index and rate.limit]
        if high:
            words = ", ".join(f"{rate.rose} {rate.counter} ({rate.words})" for rate in high)
            hours = round(max(rate.seconds for rate in high) / 3600, 1)
            evidence = {
                "address": gpu.selector,
                "hours": hours,
                "rates": {rate.counter: rate.words for rate in high},
                "limits": {rate.counter: rate.limit.source for rate in high if rate.limit},
            }
            yield replace(RISING.found(f"GPU {gpu.index}: {words}, in {span(hours)}", evidence, gpu.index), causes=CAUSES)


def found(facts: Facts) -> tuple[Rate, ...]:
    return facts.once(_rates)


def _rates(facts: Facts) -> Iterator[Rate]:
    if not facts.counters_before:
        raise Skip("no counters were saved with a baseline (gpudoctor baseline save)")
    before: dict[str, Counters] = {}
    for uuid, given in facts.counters_before.items():
        if isinstance(given, dict) and (one := counters.kept(given)):
            before[uuid] = one
    rates = tuple(trends.rates(before, counters.of(facts)))
    if not rates:
        raise Skip("the baseline has no counters of these GPUs, or was saved in the last minute")
    yield from rates


def span(hours: float) -> str:
    return f"{hours:g} hours" if hours < 48 else f"{hours / 24:.1f} days"


def summary(facts: Facts) -> str:
    rates = found(facts)
    rose = sum(rate.rose > 0 for rate in rates)
    hours = max(rate.seconds for rate in rates) / 3600
    return f"{rose} of {len(rates)} error counters rose in {span(round(hours, 1))}, all of them slowly"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(RISING,),
    needs=("nvml",),
    tags=("hardware",),
)
