"""The PCIe links of the GPUs transfer without errors.

What it means
A PCIe link repeats transfers that arrive damaged. A few repeats are normal. Many of them slow down every transfer, and are
the first sign of a bad riser, slot or card that later falls off the bus.

How it is judged
NVML's replay counter: more than 80 replays (DCGM's limit for its PCIe test) and more than ten per hour since boot. The
kernel's "PCIe Bus Error" lines (AER) about a GPU or a bridge above one: any uncorrected error, or ten corrected ones.

Known exceptions
Receiver errors, bad packets and lane errors while the link trains at boot are normal and are not counted. AER lines of other
devices (often wireless cards) are not counted either. A virtual machine does not see the errors of its host's bus. Errors of
a link that has lost lanes or speed are reported by pcie-link.

References
https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_errors.h
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.pcie_links import bus_errors, has_many_replays, is_degraded, link_errors, way_to
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

MAXIMUM_CORRECTED = 9

RESEAT = (
    Fix(
        "Switch off, reseat the card and its power cables, remove the riser or try another slot",
        risk="disruptive",
        verify="sudo dmesg | grep -c 'PCIe Bus Error'",
        on=("physical",),
    ),
    Fix(
        "If the errors continue: update the board's firmware, and set the slot one PCIe generation lower",
        needs=("reboot",),
        on=("physical",),
    ),
    Fix("Ask the owner of the host: the link cannot be repaired from inside a container", on=("container",)),
    Fix("Under WSL: shut down Windows, switch the power off, reseat the card", on=("wsl2",)),
)
ERRORS = "https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_errors.h"

REPLAYS = Problem(
    id="pcie-replays-high",
    title="A GPU's PCIe link repeats many transfers",
    why="The link repeats transfers that arrived damaged. It still works, but slower. The connection is getting worse, or was "
    "never good.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=RESEAT,
    references=(ERRORS,),
)

IN_LOG = Problem(
    id="pcie-errors-in-log",
    title="The kernel logs PCIe errors on the path to a GPU",
    why="The link to the GPU, or a bridge above it, reports errors. Corrected errors cost speed. Uncorrected errors end with the "
    "GPU falling off the bus.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=RESEAT,
    references=(ERRORS,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    degraded = [gpu for gpu in facts.nvml.gpus if is_degraded(facts, gpu) and link_errors(facts, gpu)]
    gpus = [gpu for gpu in facts.nvml.gpus if gpu not in degraded]
    if gpus or not degraded:
        yield from judge_links(facts, gpus)
    if degraded:
        indices = ", ".join(str(gpu.index) for gpu in degraded)
        raise Skip(f"the link of GPU {indices} has errors and has lost lanes or speed: see pcie-link")


def judge_links(facts: Facts, gpus: list[Gpu]) -> Iterator[Finding]:
    replays = list(for_each(gpus, lambda gpu: judge_replays(facts, gpu)))
    try:
        in_log = list(judge_log(facts, gpus))
    except Skip:
        yield from replays
        raise
    yield from in_log or replays  # two views of one bad link


def judge_replays(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    if has_many_replays(facts, gpu):
        hours = facts.system.uptime_seconds / 3600
        yield REPLAYS.found(
            f"GPU {gpu.index} counted {gpu.pcie_replays} replays; the machine has been up for {hours:.1f} hours",
            {"link": gpu.bus_id, "replays": gpu.pcie_replays, "uptime_hours": round(hours, 1)},
            gpu=gpu.index,
        )


def judge_log(facts: Facts, gpus: list[Gpu]) -> Iterator[Finding]:
    ways = {function.address: way_to(function) for function in facts.pci.gpus}
    others = {address for gpu in facts.nvml.gpus if gpu not in gpus for address in ways.get(gpu.bus_id, ())}
    found = bus_errors(facts, {address for way in ways.values() for address in way} - others)
    if found.uncorrected or found.corrected.total() > MAXIMUM_CORRECTED:
        where = ", ".join(sorted(found.uncorrected | found.corrected))
        counts = f"{found.uncorrected.total()} uncorrected and {found.corrected.total()} corrected errors"
        yield IN_LOG.found(
            f"{counts} on the path to a GPU, at {where}",
            {"uncorrected": dict(found.uncorrected), "corrected": dict(found.corrected), "line": found.last},
        )


def summary(facts: Facts) -> str:
    replays = sum(gpu.pcie_replays for gpu in facts.nvml.gpus)
    return f"{replays} PCIe replays, no errors logged"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(REPLAYS, IN_LOG),
    needs=("nvml",),
    tags=("hardware",),
)
