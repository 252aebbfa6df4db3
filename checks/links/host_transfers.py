"""Data moves between host and GPU at the speed of the PCIe link, and arrives intact.

What it means
All data of a program passes through this link: batches, weights, offloaded layers, checkpoints. A link that lost lanes,
memory on another socket or a firmware setting makes all of that slower, without any error.

How it is judged
Measures copies of 256 MiB of page-locked memory in each direction, with the program on the CPU cores near the GPU. They are
compared with what card and slot support together (generation and lanes, minus the protocol overhead), with the same GPUs in
this machine, and with this GPU's saved baseline. The data that was copied to the GPU and back is compared word by word. The
link's speed and width are read under load, when the link does not save power. Both directions at once, pageable memory and
small copies are shown, not judged, as they depend on the CPU. All GPUs at once warn if each gets less than a third of what it
gets alone.

Known exceptions
In virtual machines, clouds connect some cards with half of the lanes, which then counts as full width. MIG slices share the
link. GPUs connected to their CPU by NVLink-C2C are faster than their PCIe link. Two GPUs below one switch get half each.

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
SHARED = 0.3  # of what a GPU gets alone; less means that more than three share a path
MANY_REPLAYS = 1000  # as in errors-under-load
TOGETHER = ", all GPUs at once"

LOW_LINK = Problem(
    id="pcie-link-low-while-copying",
    title="Under load, a GPU's PCIe link was below what card and slot support",
    why="The link was narrower or at a lower generation under load, when it does not save power. The card is not seated well, a "
    "riser or slot limits it, or the link slowed down after errors.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        kernel_log("Check the kernel log for link errors", "-E 'AER|PCIe Bus Error' | tail", on=("host",)),
        Fix(
            "Reseat the card, remove the riser, set the slot's speed to Auto in the firmware",
            risk="disruptive",
            needs=("reboot",),
            verify=AGAIN,
            on=("physical", "wsl2"),
        ),
        Fix("Ask the owner of the host: the slot cannot be repaired from inside a container", verify=AGAIN, on=("container",)),
    ),
)
SLOW = Problem(
    id="host-transfers-slow",
    title="Transfers between host and GPU are slower than the PCIe link allows",
    why="The link has its full speed and width. The remaining causes are memory on another socket, an IOMMU that translates, too "
    "few memory modules, or a power-saving mode of the CPU.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Show which CPU cores and which memory are near the GPU", "nvidia-smi topo -m"),
        look(
            "Check whether the IOMMU translates (DMA) or not (identity)",
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
    title="Data copied to the GPU and back was changed",
    why="The host's memory, the PCIe link or the GPU's memory changes data without reporting an error. No result of this GPU in "
    "this machine can be trusted.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look("Stop work on this GPU, then measure again", AGAIN),
        kernel_log(
            "Check the kernel log for link and memory errors", "-iE 'AER|PCIe Bus Error|EDAC|mce|xid' | tail", on=("host",)
        ),
        look("Test the GPU's memory; test the host's memory with memtest86+", "gpudoctor check --level full --gpus <index>"),
    ),
)
SHARED_PATH = Problem(
    id="gpus-share-narrow-path",
    title="Many GPUs share one narrow path to the host",
    why="All GPUs together get little more than one alone: they share one uplink, or the memory of all transfers is on one "
    "socket. Jobs that load data for all GPUs wait for it.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look("Show which GPUs share a bridge and which socket they belong to", "nvidia-smi topo -m; lspci -tv"),
        Fix("Move the cards to different uplinks; in a virtual machine, ask its host for matching NUMA nodes", risk="disruptive"),
    ),
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        yield from figures_of(facts, run)
    yield from at_once(facts)


def figures_of(facts: Facts, run: Run) -> Iterator[Figure]:
    assert run.gpu is not None
    of_link = link(facts, run.gpu)
    for name in LARGE:
        result = run.values.get(name)
        if result:
            expected = of_link if name in JUDGED else NOTHING
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
    return f"{count} of the 8-byte words that were read back are wrong" if count else ""


def link(facts: Facts, index: int) -> Expected:
    """The most that the link can carry; NOTHING if other devices share it."""
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
    """One finding for each GPU whose data was damaged; faulty memory of that GPU explains it."""
    damaged: dict[int | None, list[str]] = {}
    for figure in found:
        if figure.wrong:
            damaged.setdefault(figure.gpu, []).append(f"{figure.what}: {figure.wrong}")
    for gpu, (first, *rest) in damaged.items():
        words = f"GPU {gpu}: {first}" + (f", and {len(rest)} more transfer{'s' * (len(rest) > 1)}" if rest else "")
        because = "gpu-memory-wrong" if slowness.has_wrong_memory(facts, gpu) else ""
        yield replace(DAMAGED.found(words, {"index": gpu}, gpu, partial=True), because=because)


def link_only(figure: Figure) -> dict[str, Any]:
    """What was observed, without the clocks: a copy does not raise or need them."""
    return {name: value for name, value in figure.during.items() if not name.endswith("_mhz")}


def low_link(slow: Slow) -> Finding | None:
    low = watched_link.low(slow.facts, slow.gpu, slow.during)
    if low is None:
        return None
    return slow.found(LOW_LINK, f"its link {low.words}", "pcie-width-downgraded" if low.is_narrow else "pcie-gen-low-under-load")


def explained(facts: Facts, finding: Finding) -> Finding:
    """The finding with its cause, if the link repeats transfers or the program could not run near the GPU."""
    counters = facts.measured.counters.get(finding.gpu or 0, {})
    replays = counters.get("after", {}).get("pcie_replays", 0) - counters.get("before", {}).get("pcie_replays", 0)
    if replays > MANY_REPLAYS:
        words = f"{finding.message}; the link repeated {replays} transfers"
        return replace(finding, message=words, because="many-corrected-errors-under-load", confidence=Confidence.LIKELY)
    for run in facts.measured.runs(WORKLOAD):
        if run.gpu == finding.gpu and run.values.get("memory", {}).get("near_gpu") is False:
            words = f"{finding.message}; the program is not allowed to use a CPU core near it"
            return replace(finding, message=words, because="numa-affinity-wrong", confidence=Confidence.LIKELY)
    return launching.virtual(facts, finding)


def judge_sharing(speeds: dict[tuple[str, int | None], float]) -> Iterator[Finding]:
    for name in JUDGED:
        together = {gpu: value for (what, gpu), value in speeds.items() if what == name + TOGETHER}
        short = {gpu: value for gpu, value in together.items() if value < SHARED * speeds.get((name, gpu), 0.0)}
        if short:
            alone = min(speeds[name, gpu] for gpu in short)
            words = f"GPU {', '.join(map(str, short))} get as little as {min(short.values()):.1f} GB/s, but {alone:.1f} alone"
            yield SHARED_PATH.found(f"{name}, all {len(together)} GPUs at once: {words}", {"gpus": sorted(map(str, short))})
            return


def summary(facts: Facts) -> str:
    with contextlib.suppress(ValueError):
        slowest = min((figure for figure in facts.once(figures) if figure.what in JUDGED), key=lambda figure: figure.value)
        return f"at least {slowest.value:.1f} GB/s each way ({slowest.rule or 'nothing to compare with'}), data intact"
    return "data intact"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DAMAGED, LOW_LINK, SLOW, SHARED_PATH, *faults.ALL),
    needs=("cuda-context",),
    level="standard",
    workloads=(WORKLOAD, AT_ONCE),
    figures=figures,
    tags=("performance",),
)
