"""No error counter of a GPU rises under load.

What it means
Memory, links and caches count the errors that they correct or cannot correct. A GPU whose counters do not rise while it is
idle may make errors as soon as it is under load.

How it is judged
Compares ECC errors, remapped rows and PCIe replays before the first and after the last measurement of this run. gpudoctor burn
also reads them each second: the message then says where in the GPU, since when, how fast, and during which load.

Known exceptions
ECC is there to correct a few errors, and links are built to repeat a few transfers: only more than 100 corrected errors, or
more than 1000 replays, warn. GPUs without ECC have no such counters.

References
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import kernel_log, look, reset
from gpudoctor.judging.measured import expect
from gpudoctor.judging.measured.watched import Growth, under_load
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

GUIDE = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
MOST = {"ecc_corrected": 100, "pcie_replays": 1000}
LOOK = "nvidia-smi -q -i <address> -d ECC,ROW_REMAPPER"

WORDS = {
    "ecc_corrected": "corrected ECC errors",
    "ecc_uncorrected": "uncorrectable ECC errors",
    "pcie_replays": "PCIe replays",
    "remapped_rows": "remapped rows",
}
# Counter -> the beginning of the names of what is watched of it each second.
WATCHED = {
    "ecc_corrected": "ecc_corrected",
    "ecc_uncorrected": "ecc_uncorrected",
    "pcie_replays": "pcie_replays",
    "remapped_rows": "rows_",
}
PLACES = {"dram": "DRAM", "sram": "SRAM", "l1": "L1 cache", "l2": "L2 cache", "registers": "register file"}
FIXES_BY_COUNTER = {
    "ecc_corrected": look("Show the counters, and have the GPU watched", LOOK, verify="gpudoctor check --gpus <index>"),
    "pcie_replays": kernel_log(
        "Check the kernel log for link errors; reseat the card or riser",
        "-E 'AER|PCIe Bus Error' | tail",
        verify="gpudoctor check --only host-transfers --gpus <index>",
    ),
}

MEMORY = Problem(
    id="memory-errors-under-load",
    title="Under load, the GPU's memory had uncorrectable errors",
    why="The counters rose during this run's measurements. A program that reads such memory is stopped, or gets wrong data.",
    action=Action.RESET_GPU,
    fixes=(
        look("Show the counters, and whether rows are waiting to be replaced", LOOK),
        reset("Reset the GPU to replace the bad rows", gpu="<index>"),
        Fix("If the errors come back: replace the GPU", verify="gpudoctor check --level full --gpus <index>"),
    ),
    references=(GUIDE,),
)
MANY = Problem(
    id="many-corrected-errors-under-load",
    title="Under load, a GPU corrects unusually many errors",
    why="Each error was corrected, but a part with this many corrected errors is close to uncorrectable ones.",
    action=Action.WATCH,
    fixes=tuple(FIXES_BY_COUNTER.values()),
    references=(GUIDE,),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.measured.plan["gpus"]:
        raise Skip("; ".join(facts.measured.not_measured.values()), facts.measured.plan["kind"])
    if not any("after" in counters for counters in facts.measured.counters.values()):
        raise Skip("NVML was not read before and after the measurements", Skip.NO_ANSWER)
    for index in facts.measured.counters:
        yield from judge_gpu(facts, index)


def judge_gpu(facts: Facts, index: int) -> Iterator[Finding]:
    rose = risen(facts, index)
    gpu = expect.gpu(facts, index)
    evidence = {"index": index, "address": gpu.bus_id if gpu else index}
    bad = {name: count for name, count in rose.items() if name not in MOST}
    many = {name: count for name, count in rose.items() if count > MOST.get(name, count)}
    if bad:
        yield MEMORY.found(in_words(index, bad) + since(facts, index, bad), {**evidence, **bad}, index, partial=True)
    if many:
        fixes = tuple(FIXES_BY_COUNTER[name] for name in many)
        yield replace(MANY, fixes=fixes).found(in_words(index, many) + since(facts, index, many), {**evidence, **many}, index)


def risen(facts: Facts, index: int) -> dict[str, int]:
    """Counter -> its increase."""
    counters = facts.measured.counters[index]
    after = counters.get("after", {})
    before = counters.get("before", {})
    return {name: after[name] - before[name] for name in before if after.get(name, before[name]) > before[name]}


def since(facts: Facts, index: int, counters: Iterable[str]) -> str:
    """What was watched of them: "; corrected ECC errors from 2:10 on, 12 a minute, during memory patterns (DRAM 40)"."""
    try:
        growths = under_load(facts).growths(index)
    except Skip:
        return ""
    return "".join(_since(name, [growth for growth in growths if growth.counter.startswith(WATCHED[name])]) for name in counters)


def _since(name: str, growths: list[Growth]) -> str:
    if not growths:
        return ""
    whole = next((growth for growth in growths if growth.counter == name), growths[0])
    places = {growth.counter.removeprefix(name + "_"): growth.rose for growth in growths if growth.counter.startswith(name + "_")}
    shown = ", ".join(f"{PLACES.get(place, place)} {rose:.0f}" for place, rose in places.items())
    return f"; {WORDS[name]} {whole.words}{f' ({shown})' if shown else ''}"


def in_words(index: int, counts: dict[str, int]) -> str:
    found = ", ".join(f"{WORDS.get(name, name)} rose by {count}" for name, count in counts.items())
    return f"GPU {index}: {found} during the measurements"


def summary(facts: Facts) -> str:
    names = sorted({name for counters in facts.measured.counters.values() for name in counters.get("after", {})})
    if not names:
        return "this GPU has no error counters"
    return f"no error counter rose: {', '.join(WORDS.get(name, name) for name in names)}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(MEMORY, MANY),
    needs=("cuda-context",),
    level="standard",
    tags=("hardware",),
)
