"""Every GPU is below the temperatures at which it slows down.

What it means
A GPU has a highest operating temperature, above which the driver lowers its clocks, and a slowdown temperature, above which
its hardware halves them. The memory has its own limit.

How it is judged
Compares the temperatures of core and memory with the limits that NVML reports for this GPU, computed from the margin
(T.Limit) if necessary. At or above the slowdown temperature fails; at or above the highest operating temperature warns.

Known exceptions
A GPU that reports that heat slows it down is judged by throttling. Many GPUs do not report the temperature of their memory. A
high temperature below these limits is normal under load.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known, supported
from gpudoctor.fixes.common import FANS, airflow
from gpudoctor.model import Action, Check, Finding, Problem, Skip, Status, for_each

HEADER = "https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h"
THERMAL_SLOWDOWN = 0x20 | 0x40
LOOK = "nvidia-smi -q -i <address> -d TEMPERATURE"
COOL = airflow(LOOK)
FANS = FANS

TOO_HOT = Problem(
    id="gpu-too-hot",
    title="A GPU is hotter than its slowdown temperature",
    why="Above this temperature the hardware halves the clocks. A few degrees higher, the GPU switches off.",
    action=Action.FIX_CONFIG,
    fixes=(COOL, FANS),
    references=(HEADER,),
)
AT_LIMIT = Problem(
    id="gpu-at-temperature-limit",
    title="A GPU is at its highest operating temperature",
    why="Above this temperature the driver lowers the clocks. The GPU works but has no reserve.",
    action=Action.WATCH,
    fixes=(COOL, FANS),
    references=(HEADER,),
    status=Status.WARN,
)
MEMORY_AT_LIMIT = Problem(
    id="gpu-memory-at-temperature-limit",
    title="A GPU's memory is at its highest operating temperature",
    why="Above this temperature the driver lowers the clocks, even if the core is cool.",
    action=Action.WATCH,
    fixes=(COOL, FANS),
    references=(HEADER,),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    slowed = None
    for finding in for_each(
        [(question, gpu) for gpu in facts.nvml.reachable.values() for question in (judge_core, judge_memory)],
        lambda pair: pair[0](pair[1]),
    ):
        if is_slowed_by_heat(facts.nvml.gpus[finding.gpu or 0]):
            slowed = finding
        else:
            yield finding
    if slowed:
        raise Skip(f"{slowed.message}; this slows the GPU down: see throttling")


def judge_core(gpu: Gpu) -> Iterator[Finding]:
    now = gpu.temperature_c
    slowdown, highest = limit(gpu, "slowdown"), limit(gpu, "max_operating")
    if slowdown is None and highest is None:
        gpu.temperature_limit_c("slowdown")  # skips with the reason why no limit is known
    if slowdown is not None and now >= slowdown:
        yield found(TOO_HOT, gpu, f"{now} °C, slowdown starts at {slowdown} °C", {"temperature_c": now, "limit_c": slowdown})
    elif highest is not None and now >= highest:
        yield found(
            AT_LIMIT,
            gpu,
            f"{now} °C, the highest operating temperature is {highest} °C",
            {"temperature_c": now, "limit_c": highest},
        )


def judge_memory(gpu: Gpu) -> Iterator[Finding]:
    now, highest = gpu.memory_temperature_c, gpu.temperature_limit_c("memory")
    if now >= highest:
        values = {"temperature_c": now, "limit_c": highest}
        yield found(MEMORY_AT_LIMIT, gpu, f"memory at {now} °C, the highest operating temperature is {highest} °C", values)


def found(problem: Problem, gpu: Gpu, words: str, evidence: dict[str, int]) -> Finding:
    return problem.found(f"GPU {gpu.index}: {words}", {"address": gpu.selector, **evidence}, gpu.index)


def limit(gpu: Gpu, kind: str) -> int | None:
    return supported(lambda: gpu.temperature_limit_c(kind), None)


def is_slowed_by_heat(gpu: Gpu) -> bool:
    return known(lambda: bool(gpu.clock_reasons & THERMAL_SLOWDOWN), False)


def summary(facts: Facts) -> str:
    return ", ".join(f"{gpu.temperature_c}" for gpu in facts.nvml.reachable.values()) + " °C"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(TOO_HOT, AT_LIMIT, MEMORY_AT_LIMIT),
    needs=("nvml",),
    tags=("hardware", "performance"),
)
