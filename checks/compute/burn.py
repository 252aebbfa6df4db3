"""Under full load for minutes, every result is the same, bit for bit, on every GPU.

What it means
A GPU that passes short tests can still compute wrong numbers when it is hot or when its power changes quickly, and no error
is reported. Training then diverges, and answers are wrong. The same work repeated must give the same bits.

How it is judged
gpudoctor burn multiplies the same matrices again and again, at full power and in bursts of 1 to 100 ms that start on all GPUs at
the same moment. Every result is compared bit for bit with the first, and a sample of the first with fp64. GPUs of one model
must agree with each other. Between these stretches, patterns are written to nearly all memory and read back, and copies between
host and GPU are compared with what was sent. One wrong word fails.

Known exceptions
With two GPUs that disagree, the result does not show which of them is wrong. A fault that needs hours stays hidden in minutes.

References
https://research.google/pubs/cores-that-dont-count/
https://arxiv.org/abs/2102.11245
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look, reset
from gpudoctor.judging.measured import burning, expect
from gpudoctor.judging.measured.burning import Burned, Stretch
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip

AGAIN = "gpudoctor burn --gpus <index>"
LOOK = "nvidia-smi -q -i <address> -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"
OUT = Fix("Stop using the GPU: its results cannot be trusted", verify=AGAIN)
ONE = {"power": "products", "bursts": "products", "memory": "memory", "pcie": "copies"}

WRONG = Problem(
    id="burn-wrong-result",
    title="Under load, the GPU computes wrong results without an error",
    why="The same matrices gave other bits than before. Everything that this GPU computes can be wrong.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        OUT,
        look("Check whether ECC is on, and whether rows are waiting to be replaced", LOOK),
        Fix("If clocks or voltage were changed: restore the defaults, then test again", verify=AGAIN),
        reset("Reset the GPU and test again; if it is wrong again, have it replaced", gpu="<index>", verify=AGAIN),
    ),
)
MEMORY = Problem(
    id="burn-wrong-memory",
    title="Under load, the GPU's memory does not hold what was written to it",
    why="Words that were read back differ from what was written, and no error was reported.",
    action=Action.REPLACE_HARDWARE,
    fixes=(OUT, look("Check whether ECC is on, and whether rows are waiting to be replaced", LOOK)),
)
COPIES = Problem(
    id="burn-wrong-copies",
    title="Under load, copies between host and GPU arrive damaged",
    why="PCIe repeats transfers that its checksum finds damaged. What arrives wrong was damaged in a buffer: in host memory "
    "without ECC, in a bridge, or in the GPU.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        Fix("Test the host's memory, for example with memtest86+, and look for ECC errors of the host", "ras-mc-ctl --summary"),
        Fix("Move the GPU to another slot, without a riser, and test again", verify=AGAIN),
    ),
)
DIFFER = Problem(
    id="burn-gpus-disagree",
    title="GPUs of one model compute different results from the same numbers",
    why="The same kernel with the same numbers gives the same bits on every GPU of a model. At least one of these GPUs is wrong.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        Fix("Stop using the GPU that differs; of two, compare each with a third one", verify="gpudoctor burn"),
        look("Check that all of them have the same firmware and clocks", "nvidia-smi -q -d CLOCK,ECC"),
    ),
)
STOPPED = Problem(
    id="burn-stopped",
    title="The load was stopped before its time, to protect the machine",
    why="gpudoctor burn stops the work of a GPU at its slowdown temperature, at an uncorrectable memory error or a fatal Xid, "
    "and when another program begins to use it.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Show temperatures, errors and processes", "nvidia-smi -q -d TEMPERATURE,ECC,PIDS"),
        Fix("Remove the cause, then repeat the test", verify="gpudoctor burn"),
    ),
)
PROBLEMS = {"memory": MEMORY, "pcie": COPIES}


def judge(facts: Facts) -> Iterator[Finding]:
    yield from judge_end(facts)
    found = burning.burned(facts)
    for each in found:
        yield from judge_gpu(facts, each)
    for group in burning.by_kind(facts, found):
        yield from judge_agreement(group)


def judge_gpu(facts: Facts, each: Burned) -> Iterator[Finding]:
    known = expect.gpu(facts, each.index) if each.index is not None else None
    evidence = {"index": each.index, "address": known.bus_id if known else each.index}
    for problem in (WRONG, MEMORY, COPIES):
        bad = [stretch for stretch in each.stretches if is_wrong(stretch) and PROBLEMS.get(stretch.load, WRONG) is problem]
        if bad:
            yield problem.found(in_words(each, bad), {**evidence, "wrong": details(bad)}, each.index, partial=True)


def is_wrong(stretch: Stretch) -> bool:
    return bool(stretch.wrong_words) or stretch.values.get("verified") is False


def in_words(each: Burned, bad: list[Stretch]) -> str:
    loads = ", ".join(dict.fromkeys(f"{stretch.load} {stretch.precision}".strip() for stretch in bad))
    count = sum(stretch.wrong_words for stretch in bad)
    words = f"{count} wrong words of 8 bytes" if count else "a first result that differs from fp64"
    return f"GPU {each.index}: {words} in {len(bad)} of {len(each.stretches)} stretches ({loads}){heat(bad)}{repeated(bad)}"


def heat(bad: list[Stretch]) -> str:
    known = [stretch.celsius for stretch in bad if stretch.celsius is not None]
    return f", at up to {max(known):.0f} °C" if known else ""


def repeated(bad: list[Stretch]) -> str:
    """If the same address of the memory is wrong again and again, it."""
    addresses = Counter(word["address"] for stretch in bad for word in stretch.values.get("wrong", ()) if "address" in word)
    address, count = next(iter(addresses.most_common(1)), ("", 0))
    return f"; {address} was wrong {count} times" if count > 1 else ""


def details(bad: list[Stretch]) -> dict[str, object]:
    return {
        stretch.name: {"words": stretch.wrong_words, "first": list(stretch.values.get("wrong", ()))[:4]} for stretch in bad[:8]
    }


def judge_agreement(group: list[Burned]) -> Iterator[Finding]:
    """The checksums of each product, by GPU: equal GPUs have equal ones."""
    sums: dict[tuple[str, int], dict[int, set[str]]] = {}
    for each in group:
        for stretch in (*each.of("power"), *each.of("bursts")):
            if each.index is not None:
                key = stretch.precision, int(stretch.values["size"])
                sums.setdefault(key, {}).setdefault(each.index, set()).add(stretch.values["checksum"])
    for (precision, size), by_gpu in sums.items():
        ways = Counter(checksum for found in by_gpu.values() for checksum in found)
        if len(ways) < 2:
            continue
        usual, count = ways.most_common(1)[0]
        others = [index for index, found in by_gpu.items() if found != {usual}]
        names = others if count > 1 and len(others) < len(by_gpu) else list(by_gpu)
        words = f"{precision} products of {size} × {size} differ: GPU {', '.join(map(str, names))}"
        words += f" from the other {len(by_gpu) - len(others)}" if names == others else ""
        yield DIFFER.found(words, {"precision": precision, "size": size, "differs": names}, partial=True)


def judge_end(facts: Facts) -> Iterator[Finding]:
    """A load that was stopped by a rule of ours; one that the user interrupted is reported as that."""
    reasons = facts.measured.stopped_by((burning.WORKLOAD, burning.LINKS, burning.COLLECTIVES))
    if reasons:
        words = "; ".join(f"after {seconds:.0f} s: {reason}" for reason, seconds in reasons.items())
        reason = "; ".join(reasons)
        evidence = {"reason": reason, "seconds": round(max(reasons.values()))}
        yield replace(STOPPED.found(f"stopped {words}", evidence), causes=tuple(causes_of(reason)))


def causes_of(reason: str) -> Iterator[str]:
    """The problems that other checks report for it."""
    if "memory error" in reason:
        yield "memory-errors-under-load"
    for code in re.findall(r"\bXid (\d+)", reason):
        known = knowledge.xid(int(code))
        if known and known.problem:
            yield known.problem


def figures(facts: Facts) -> Iterator[Figure]:
    for each in burning.burned(facts):
        hottest = each.hottest or each.of("power")
        if hottest:
            yield Figure(f"sustained {hottest[0].precision}", min(stretch.tflops for stretch in hottest), "TFLOP/s", each.index)
        for load, what in (("memory", "memory patterns"), ("pcie", "copies both ways")):
            speeds = [stretch.values["gb_per_s"] for stretch in each.of(load) if stretch.values["gb_per_s"]]
            if speeds:
                yield Figure(f"sustained {what}", min(speeds), "GB/s", each.index)
        watts = [stretch.watts for stretch in hottest if stretch.watts is not None]
        if watts:
            yield Figure("sustained power", max(watts), "W", each.index)
        degrees = [stretch.celsius for stretch in each.stretches if stretch.celsius is not None]
        if degrees:
            yield Figure("highest temperature", max(degrees), "°C", each.index)
        of_memory = [stretch.memory_celsius for stretch in each.stretches if stretch.memory_celsius is not None]
        if of_memory:
            yield Figure("highest memory temperature", max(of_memory), "°C", each.index)


def summary(facts: Facts) -> str:
    found = burning.burned(facts)
    if not all(each.is_complete for each in found):
        raise Skip("the load was ended early; what it computed until then was correct", Skip.CUT_OFF)
    minutes = max(each.seconds for each in found) / 60
    loads = Counter(ONE[stretch.load] for each in found for stretch in each.stretches)
    return f"{minutes:.1f} min of load, all {', '.join(loads)} correct"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG, MEMORY, COPIES, DIFFER, STOPPED),
    needs=("cuda-context",),
    level="burn",
    workloads=(burning.WORKLOAD,),
    figures=figures,
    tags=("hardware",),
)
