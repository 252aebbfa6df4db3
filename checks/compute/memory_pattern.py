"""Each GPU's memory holds what is written to it: nearly all of it is filled with patterns and read back.

What it means
A faulty row or line of memory damages data without an error on GPUs without ECC and where ECC is disabled. With ECC,
uncorrectable errors stop the program. Only memory that was written and read back is known to be good.

How it is judged
Writes twelve patterns (each word's address, its inverse, alternating bits, eight pseudo-random ones) to nearly all free
memory and compares it word by word. Everything is written before anything is read, so a write to the wrong place is detected
too. One wrong word fails. The check passes only if at least 75 % of the GPU's whole memory was tested. If other processes
hold more than that leaves, the check is skipped and reports how much was found good.

Known exceptions
A fault that needs heat or hours may stay hidden: the test takes seconds. ECC corrects single-bit errors, which then only show
in its counters: see errors-under-load.

References
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
https://github.com/ComputationalRadiationPhysics/cuda_memtest
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.fixes.common import look, reset
from gpudoctor.judging.measured import expect
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip, Status, Unavailable, for_each

WORKLOAD = "memory-pattern"
NEEDED_SHARE = 0.75  # of the whole memory
GUIDE = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
AGAIN = "gpudoctor check --level full --only memory-pattern --gpus <index>"
LOOK = "nvidia-smi -q -i <address> -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"
RESET = reset("Stop work on the GPU, then reset it: a bad row that was detected is then replaced", verify=AGAIN)
HOST = Fix("Ask the owner of the host to reset or replace the GPU", on=("container", "wsl2"))

WRONG = Problem(
    id="gpu-memory-wrong",
    title="The GPU's memory does not hold what was written to it",
    why="Words that were read back differ from what was written, and no error was reported. Everything that this GPU computes "
    "can be wrong.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look("Check whether ECC is on, and whether rows are waiting to be replaced", LOOK),
        RESET,
        look("If words are still wrong: run the vendor's long test and have the GPU replaced", "dcgmi diag -r 4", on=("host",)),
        HOST,
    ),
    references=(GUIDE,),
)
UNCORRECTABLE = Problem(
    id="gpu-memory-uncorrectable",
    title="ECC found an error in the GPU's memory that it cannot correct",
    why="The driver stopped the test when it read a word that ECC could not correct. The row is marked, and replaced with a "
    "spare one at the next reset. A GPU on which this happens again is due for replacement.",
    action=Action.RESET_GPU,
    fixes=(
        look("Check whether rows are waiting to be replaced", LOOK),
        RESET,
        look("If it happens again: replace the GPU", "dcgmi diag -r 4", on=("host",)),
        HOST,
    ),
    references=(GUIDE,),
)
REFUSED = Problem(
    id="gpu-memory-not-allocatable",
    title="The GPU reports free memory, but refuses to allocate it",
    why="CUDA refused allocations although much more memory was free. The cause is a limit (MIG, vGPU, MPS, a cgroup) or a "
    "driver in a bad state.",
    action=Action.WATCH,
    fixes=(
        look(
            "Show which processes hold memory, and whether MPS or MIG limit it",
            "nvidia-smi; nvidia-smi -q -i <address> -d MEMORY",
        ),
        look("List limits in the environment", "env | grep -E 'CUDA_MPS|CUDA_DEVICE'"),
    ),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.measured.runs(WORKLOAD), lambda run: judge_run(facts, run))


def judge_run(facts: Facts, run: Run) -> Iterator[Finding]:
    assert run.gpu is not None
    known = expect.gpu(facts, run.gpu)
    evidence = {"index": run.gpu, "address": known.bus_id if known else run.gpu}
    patterns = {
        name: result
        for name, result in run.values.items()
        if isinstance(result, dict) and isinstance(result.get("wrong_words"), int)
    }
    bad = {name: result for name, result in patterns.items() if result["wrong_words"]}
    if bad:
        yield WRONG.found(in_words(run, bad), {**evidence, "wrong": bad}, run.gpu, partial=True)
    if "uncorrectable" in run.values:
        found = run.values["uncorrectable"]
        message = f"GPU {run.gpu}: {found['error']} while pattern {found['pattern']} was tested"
        finding = UNCORRECTABLE.found(message, {**evidence, **found}, run.gpu, partial=True)
        yield replace(finding, because="memory-errors-under-load")
    elif not bad:
        yield from judge_coverage(run, evidence)


def judge_coverage(run: Run, evidence: dict[str, Any]) -> Iterator[Finding]:
    """Findings if too little was tested: a good part does not prove the rest."""
    if "complete" not in run.values:
        raise Unavailable(f"GPU {run.gpu}: the test did not finish: see measurements")
    tested = run.values["tested"]
    if tested["stopped"] and tested["bytes"] < NEEDED_SHARE * tested["free_bytes"]:
        message = f"GPU {run.gpu}: {gib(tested['free_bytes'])} were free, but after {gib(tested['bytes'])}: {tested['stopped']}"
        yield REFUSED.found(message, {**evidence, **tested}, run.gpu, partial=True)
    elif share(run) < NEEDED_SHARE:
        others = gib(tested["total_bytes"] - tested["free_bytes"])
        words = f"GPU {run.gpu}: {share(run):.0%} of its memory were tested and good; {others} were in use"
        raise Skip(words, Skip.BUSY)


def in_words(run: Run, bad: dict[str, Any]) -> str:
    count = sum(result["wrong_words"] for result in bad.values())
    first = next((word for result in bad.values() for word in result["wrong"]), None)
    where = (
        f", the first at {first['address']} with {first['wrong_bits']} wrong bit{'s' * (first['wrong_bits'] > 1)}"
        if first and first["wrong_bits"]
        else ""
    )
    where = where or (f", the first at {first['address']}, which was correct when read again" if first else "")
    return f"GPU {run.gpu}: {count} wrong words of 8 bytes in {len(bad)} patterns ({', '.join(bad)}){where}"


def share(run: Run) -> float:
    tested = run.values["tested"]
    return float(tested["bytes"] / tested["total_bytes"])


def gib(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        if "complete" in run.values:
            yield Figure("memory tested", 100 * share(run), "%", run.gpu)


def summary(facts: Facts) -> str:
    shares = [share(run) for run in facts.measured.runs(WORKLOAD)]
    patterns = facts.measured.runs(WORKLOAD)[0].values["complete"]["patterns"]
    return f"{min(shares):.0%} of the memory tested with {patterns} patterns, no wrong words"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG, UNCORRECTABLE, REFUSED),
    needs=("cuda-context",),
    level="full",
    workloads=(WORKLOAD,),
    figures=figures,
    tags=("hardware", "memory"),
)
