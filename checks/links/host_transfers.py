"""Data moves between host and GPU as fast as the PCIe link lets expect, and arrives whole.

What it means
All data of a program passes through this link: batches, weights, offloaded layers, checkpoints. A link that lost lanes, a
distant memory or a setting of the firmware makes all of that slower, and nothing says so.

How it is judged
Copies of 256 MiB of page-locked memory, each way, with the program on the processor cores near the GPU. They count against
what card and slot can do together (generation and lanes, without what the protocol takes), against the same GPUs in this
machine, and against this GPU's saved baseline. What was copied to the GPU and back is compared word by word. The link's speed
and width are read while it is at work, when it does not save power. Both ways at once, pageable memory and small copies are
shown, not judged: they depend on the processor. All GPUs at once warn where each gets less than a third of what it gets
alone.

Known exceptions
In a virtual machine clouds wire some cards with half of the lanes, which then counts as whole. MIG slices share the link, and
GPUs joined to their processor by NVLink-C2C are faster than their PCIe link. Two GPUs at one switch get half each.

References
https://github.com/NVIDIA/nvbandwidth
https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.join import index_of
from gpudoctor.facts.measured import Run
from gpudoctor.facts.pcie_links import possible_width
from gpudoctor.fixes.common import GOVERNOR, kernel_log, look
from gpudoctor.judging.measured import expect, faults, launching, slowness, watched_link
from gpudoctor.judging.measured.expect import NOTHING, Expected
from gpudoctor.judging.measured.slowness import Slow
from gpudoctor.model import Action, Cause, Check, Confidence, Figure, Finding, Fix, Problem, Skip, Status

WORKLOAD, AT_ONCE = "host-transfers", "host-transfers-at-once"
GUIDE = "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html"
AGAIN = "gpudoctor check --only host-transfers --gpus <index>"
JUDGED = ("pinned to GPU", "pinned from GPU")
LARGE = (*JUDGED, "pinned both ways", "pageable to GPU", "pageable from GPU")
SMALL = ("4 B", "4 KiB", "64 KiB", "1 MiB")
SHARED = 0.3  # of what a GPU gets alone: with less, more than three share a path
MANY_REPLAYS = 1000  # as in errors-under-load
TOGETHER = ", all GPUs at once"

LOW_LINK = Problem(
    id="pcie-link-low-while-copying",
    title="While data moved, the GPU's PCIe link ran below what card and slot can do",
    why="The link was narrower or at a lower generation at work, when it does not save power. The card sits badly, a riser or a "
    "slot limits it, or the link went back after errors.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        kernel_log("Look for errors of the link", "-E 'AER|PCIe Bus Error' | tail", on=("host",)),
        Fix(
            "Reseat the card, take out the riser, set the slot's speed to Auto in the firmware",
            risk="disruptive",
            needs=("reboot",),
            verify=AGAIN,
            on=("host", "wsl2"),
        ),
        Fix("Ask the owner of the host: the slot cannot be repaired from inside a container", verify=AGAIN, on=("container",)),
    ),
)
SLOW = Problem(
    id="host-transfers-slow",
    title="Data moves between host and GPU more slowly than the PCIe link can carry",
    why="The link itself has its full speed and width. What remains: memory of another socket, an IOMMU that translates, too few "
    "memory modules, or a power-saving mode of the processor.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("See which processor cores and which memory are near the GPU", "nvidia-smi topo -m"),
        look(
            "See whether the IOMMU translates (DMA) or not (identity)",
            "cat /sys/kernel/iommu_groups/*/type | sort | uniq -c",
            on=("host",),
        ),
        GOVERNOR,
        look("Measure again while the machine is idle", AGAIN),
    ),
    references=(GUIDE,),
)
DAMAGED = Problem(
    id="host-transfer-damages-data",
    title="Data that went to the GPU and back is not what was sent",
    why="The host's memory, the PCIe link or the GPU's memory changes data without any error. Nothing that this machine computes "
    "on this GPU can be trusted.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look("Stop work on this GPU, then measure again", AGAIN),
        kernel_log("Look for errors of link and memory", "-iE 'AER|PCIe Bus Error|EDAC|mce|xid' | tail", on=("host",)),
        look("Test the GPU's memory; test the host's with memtest86+", "gpudoctor check --level full --gpus <index>"),
    ),
)
SHARED_PATH = Problem(
    id="gpus-share-narrow-path",
    title="Many GPUs share one narrow path to the host",
    why="All GPUs together get little more than one alone: they hang below one uplink, or the memory of all transfers is on one "
    "socket. Jobs that load data for all GPUs wait for it.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("See which GPUs share a bridge, and which socket they belong to", "nvidia-smi topo -m; lspci -tv"),
        Fix("Spread the cards over the uplinks; in a virtual machine ask its host for NUMA nodes that match", risk="disruptive"),
    ),
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        yield from figures_of(facts, run)
    yield from at_once(facts)


def figures_of(facts: Facts, run: Run) -> Iterator[Figure]:
    assert run.gpu is not None
    for name in LARGE:
        result = run.values.get(name)
        if result:
            expected = link(facts, run.gpu) if name in JUDGED else NOTHING
            during = result.get("during", {})
            value = result["gb_per_s"]
            yield Figure(name, value, "GB/s", run.gpu, expected.value, expected.rule, wrong=wrong(result), during=during)
    for way in ("to GPU", "from GPU"):
        for size in SMALL:
            result = run.values.get(f"{size} {way}")
            if result:
                yield Figure(f"{size} {way}", result["microseconds"], "µs", run.gpu, less_is_better=True)


def wrong(result: dict[str, int]) -> str:
    count = result.get("wrong_words", 0)
    return f"{count} of the 8-byte words that came back are wrong" if count else ""


def link(facts: Facts, index: int) -> Expected:
    """What the link can carry at its best; NOTHING where it is not this GPU's alone."""
    gpu, device = expect.gpu(facts, index), expect.device(facts, index)
    if gpu is None or (device and expect.is_mig(device)):
        return NOTHING
    try:
        width = possible_width(facts, gpu)
        if facts.system.hypervisor:
            width = max(width // 2, min(width, gpu.pcie_width))
        return expect.pcie(gpu.maximum_pcie_generation, width)
    except Skip:
        return NOTHING


def at_once(facts: Facts) -> Iterator[Figure]:
    try:
        (run,) = facts.measured.runs(AT_ONCE)
    except Skip:
        return
    for name in JUDGED:
        result = run.values.get(name, {"each": {}})
        for ordinal, value in result["each"].items():
            count = result.get("wrong_words", {}).get(ordinal, 0)
            index = index_of(facts, facts.cuda.devices[int(ordinal)])
            yield Figure(name + TOGETHER, value, "GB/s", index, wrong=wrong({"wrong_words": count}))


def judge(facts: Facts) -> Iterator[Finding]:
    found = facts.once(figures)
    yield from judge_data(facts, found)
    judged = [replace(figure, wrong="", during=link_only(figure)) for figure in found if figure.what in JUDGED]
    for finding in slowness.judge(facts, judged, (Cause(LOW_LINK, low_link),), SLOW):
        yield explained(facts, finding) if finding.problem.id == SLOW.id else finding
    yield from judge_sharing({(figure.what, figure.gpu): figure.value for figure in found})


def judge_data(facts: Facts, found: Iterable[Figure]) -> Iterator[Finding]:
    """One finding for each GPU whose data was damaged; broken memory of that GPU explains it."""
    damaged: dict[int | None, list[str]] = {}
    for figure in found:
        if figure.wrong:
            damaged.setdefault(figure.gpu, []).append(f"{figure.what}: {figure.wrong}")
    for gpu, (first, *rest) in damaged.items():
        words = f"GPU {gpu}: {first}" + (f", and {len(rest)} more transfer{'s' * (len(rest) > 1)}" if rest else "")
        because = "gpu-memory-wrong" if slowness.has_wrong_memory(facts, gpu) else ""
        yield replace(DAMAGED.found(words, {"index": gpu}, gpu, partial=True), because=because)


def link_only(figure: Figure) -> dict[str, Any]:
    """What was seen, without the clocks: a copy does not raise them, nor does it need them."""
    return {name: value for name, value in figure.during.items() if not name.endswith("_mhz")}


def low_link(slow: Slow) -> Finding | None:
    low = watched_link.low(slow.facts, slow.gpu, slow.during)
    if low is None:
        return None
    return slow.found(LOW_LINK, f"its link {low.words}", "pcie-width-downgraded" if low.is_narrow else "pcie-gen-low-under-load")


def explained(facts: Facts, finding: Finding) -> Finding:
    """The same with its cause, where the link repeats transfers or the program could not run near the GPU."""
    counters = facts.measured.counters.get(finding.gpu or 0, {})
    replays = counters.get("after", {}).get("pcie_replays", 0) - counters.get("before", {}).get("pcie_replays", 0)
    if replays > MANY_REPLAYS:
        words = f"{finding.message}; the link repeated {replays} transfers"
        return replace(finding, message=words, because="many-corrected-errors-under-load", confidence=Confidence.LIKELY)
    for run in facts.measured.runs(WORKLOAD):
        if run.gpu == finding.gpu and run.values.get("memory", {}).get("near_gpu") is False:
            words = f"{finding.message}; the program may use no processor core near it"
            return replace(finding, message=words, because="numa-affinity-wrong", confidence=Confidence.LIKELY)
    return launching.virtual(facts, finding)


def judge_sharing(speeds: dict[tuple[str, int | None], float]) -> Iterator[Finding]:
    for name in JUDGED:
        together = {gpu: value for (what, gpu), value in speeds.items() if what == name + TOGETHER}
        short = {gpu: value for gpu, value in together.items() if value < SHARED * speeds.get((name, gpu), 0.0)}
        if short:
            alone = min(speeds[name, gpu] for gpu in short)
            words = (
                f"GPU {', '.join(map(str, short))} get {min(short.values()):.1f} GB/s or a little more each, alone {alone:.1f}"
            )
            yield SHARED_PATH.found(f"{name}, with all {len(together)} GPUs at work: {words}", {"gpus": sorted(map(str, short))})
            return


def summary(facts: Facts) -> str:
    with contextlib.suppress(ValueError):
        slowest = min((figure for figure in facts.once(figures) if figure.what in JUDGED), key=lambda figure: figure.value)
        return f"at least {slowest.value:.1f} GB/s each way ({slowest.rule or 'nothing to compare with'}), all data right"
    return "all data right"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DAMAGED, LOW_LINK, SLOW, SHARED_PATH, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD, AT_ONCE),
    figures=figures,
)
