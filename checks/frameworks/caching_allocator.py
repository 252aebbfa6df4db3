"""torch's allocator frees memory, keeps its contents intact, and fails cleanly if there is too little.

What it means
torch keeps freed GPU memory for its next tensors, because the driver takes a hundred times as long to allocate it. Fragmented
memory can be free but unusable: a program runs out of memory with gigabytes reserved.

How it is judged
Blocks are allocated, every second one is freed, the cache is emptied, then all are freed. The memory in use according to torch
and to the driver must match that, and the blocks that were kept must hold what was written. An allocation of twice the GPU's
memory must fail with OutOfMemoryError, and the next one must work.

Known exceptions
Some steps are skipped if the environment selects another allocator or expandable segments. Disabled caching is judged by
cuda-environment. Under WSL2, Windows may use the host's memory for an allocation that is too large.

References
https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import faults, slowness
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip, Status

WORKLOAD = "caching-allocator"
LEFT_BYTES = 256 << 20  # what the driver may keep for the context and its libraries
NOTES = "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management"
CLEAN = "OutOfMemoryError"

KEEPS = Problem(
    id="allocator-keeps-memory",
    title="torch does not release freed GPU memory",
    why="Memory is still in use after all tensors were freed and the cache was emptied. A long job then runs out of memory "
    "although it has few tensors.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show the settings of the allocator", "env | grep -E 'PYTORCH_(CUDA_)?ALLOC_CONF'"),
        look("Check whether another process uses the memory", "nvidia-smi"),
    ),
    references=(NOTES,),
    status=Status.WARN,
)
UNCLEAN = Problem(
    id="out-of-memory-not-survived",
    title="torch does not recover from an allocation that is too large",
    why="A program that requests too much memory should get an error that it can handle, and continue. Here it got a different "
    "error, or nothing worked afterwards.",
    action=Action.INSTALL,
    fixes=(
        look("Show the error", "gpudoctor check --only caching-allocator -v"),
        Fix(
            "Install the newest patch release of this torch",
            "<python> -m pip install --upgrade torch",
            needs=("network",),
            verify="gpudoctor check --only caching-allocator",
            kind="install",
        ),
    ),
    references=(NOTES,),
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        yield from figures_of(run)


def figures_of(run: Run) -> Iterator[Figure]:
    memory = run.values.get("fragmentation", {})
    count = memory.get("wrong_blocks", 0)
    words = f"{count} blocks lost their contents" if count else ""
    if "allocation" in run.values:
        times = run.values["allocation"]
        value = times["cached_microseconds"]
        yield Figure("allocation from torch's cache", value, "µs", run.gpu, less_is_better=True, wrong=words)
        yield Figure("allocation from the driver", times["driver_microseconds"], "µs", run.gpu, less_is_better=True)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from (slowness.wrong(figure) for figure in facts.once(figures) if figure.wrong)
    for run in facts.measured.runs(WORKLOAD):
        yield from judge_memory(run, run.values.get("fragmentation", {}))
        yield from judge_end(facts, run, run.values.get("too large", {}))
    if not any("fragmentation" in run.values for run in facts.measured.runs(WORKLOAD)):
        raise Skip("the allocations did not finish: see measurements", Skip.NO_ANSWER)


def judge_memory(run: Run, memory: Mapping[str, Any]) -> Iterator[Finding]:
    reserved, held = memory.get("empty_reserved_bytes", 0), memory.get("empty_driver_bytes", 0)
    if reserved or held > LEFT_BYTES:
        words = (
            f"GPU {run.gpu}: after all tensors were freed, torch keeps {reserved >> 20} MiB and {held >> 20} MiB of the GPU are "
            "in use"
        )
        settings = run.values.get("settings", {}).get("text") or "none"
        yield KEEPS.found(words, {"reserved_mib": reserved >> 20, "used_mib": held >> 20, "settings": settings}, run.gpu)


def judge_end(facts: Facts, run: Run, end: Mapping[str, Any]) -> Iterator[Finding]:
    outcome = end.get("outcome", CLEAN)
    if outcome.startswith("not tried"):
        return
    expected = {CLEAN, "allocated"} if facts.system.wsl else {CLEAN}
    if outcome not in expected or not end.get("works_after", True):
        after = "" if end.get("works_after", True) else "; nothing worked afterwards"
        words = f"GPU {run.gpu}: allocating twice the GPU's memory ended in {outcome}{after}"
        yield UNCLEAN.found(words, {"message": end.get("message", "")}, run.gpu, partial=True)


def summary(facts: Facts) -> str:
    found = {figure.what: figure.value for figure in facts.once(figures)}
    cached, driver = found.get("allocation from torch's cache", 0), found.get("allocation from the driver", 0)
    return f"torch frees all memory; {cached:.1f} µs per allocation from its cache, {driver:.0f} µs from the driver"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(KEEPS, UNCLEAN, faults.WRONG),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("memory", "performance", "pytorch"),
)
