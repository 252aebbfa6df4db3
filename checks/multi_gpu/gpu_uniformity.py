"""GPUs of one model have the same firmware and settings.

What it means
A job on several GPUs runs at the speed of the slowest one. One GPU with different firmware, less memory, a lower power limit
or another ECC setting slows down all of them, or fails where its siblings do not.

How it is judged
Compares GPUs of the same name and board: the video BIOS, the size of memory and of BAR1, the power limit and the ECC mode, as
NVML reports them.

Known exceptions
Cards of different makers have different firmware and limits, and are compared only with cards of the same kind. Values that
NVML does not report for a model are not compared. MIG may differ.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import supported
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

FIELDS: dict[str, Callable[[Gpu], str]] = {
    "video BIOS": lambda gpu: gpu.vbios,
    "memory": lambda gpu: f"{gpu.memory_total_mib} MiB",
    "BAR1": lambda gpu: f"{gpu.bar1_total_mib} MiB",
    "power limit": lambda gpu: f"{gpu.power_limit_watts:g} W",
    "ECC": lambda gpu: "on" if gpu.ecc_mode.current else "off",
}
LOOK = "nvidia-smi --query-gpu=index,name,vbios_version,memory.total,power.limit,ecc.mode.current --format=csv"

DIFFERENT = Problem(
    id="gpus-not-uniform",
    title="GPUs of one model differ from each other",
    why="They are the same boards, but firmware, memory or settings differ. A job on all of them runs at the speed of the "
    "slowest, and may fail on only one.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look("Compare all of them", LOOK),
        Fix(
            "If the power limit differs: set the same limit on all",
            "sudo nvidia-smi -pl <watts>",
            verify=LOOK,
            on=("host",),
            needs=("root",),
        ),
        Fix(
            "If ECC differs: enable it on all",
            "sudo nvidia-smi -e 1",
            verify=LOOK,
            on=("host",),
            kind="set",
            reboot=True,
        ),
        Fix(
            "If the firmware differs: ask the machine's vendor for an update",
            on=("host",),
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    groups = [gpus for gpus in equal_boards(facts) if len(gpus) > 1]
    if not groups:
        raise Skip("no two GPUs of the same kind")
    is_compared = False
    for gpus in groups:
        known = {field: values(gpus, field) for field in FIELDS}
        is_compared |= any(sum(map(len, by_value.values())) > 1 for by_value in known.values())
        differences = {field: by_value for field, by_value in known.items() if len(by_value) > 1}
        if differences:
            words = "; ".join(f"{field}: {in_words(by_value)}" for field, by_value in differences.items())
            yield DIFFERENT.found(f"{gpus[0].name}: {words}", {"differs": list(differences)})
    if not is_compared:
        raise Skip("NVML reports nothing about these GPUs that could be compared", Skip.UNSUPPORTED)


def equal_boards(facts: Facts) -> list[list[Gpu]]:
    """The GPUs, grouped by model and board."""
    groups: dict[tuple[str, int], list[Gpu]] = defaultdict(list)
    for gpu in facts.nvml.reachable.values():
        groups[gpu.name, int(gpu.get("PciInfo.pciSubSystemId"))].append(gpu)
    return list(groups.values())


def values(gpus: list[Gpu], field: str) -> dict[str, list[int]]:
    """Value -> the GPUs that have it, without GPUs for which NVML does not report it."""
    by_value: dict[str, list[int]] = defaultdict(list)
    for gpu in gpus:
        value = supported(partial(FIELDS[field], gpu), None)
        if value is not None:
            by_value[value].append(gpu.index)
    return by_value


def in_words(by_value: dict[str, list[int]]) -> str:
    """The most frequent value first: "700 W (GPU 0, 1, 2), 500 W (GPU 3)"."""
    ordered = sorted(by_value.items(), key=lambda item: -len(item[1]))
    return ", ".join(f"{value} (GPU {', '.join(map(str, gpus))})" for value, gpus in ordered)


def summary(facts: Facts) -> str:
    groups = [gpus for gpus in equal_boards(facts) if len(gpus) > 1]
    return ", ".join(f"{len(gpus)} equal {gpus[0].name}" for gpus in groups)


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DIFFERENT,),
    needs=("nvml",),
)
