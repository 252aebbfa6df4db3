"""No change of the MIG mode is waiting for a reset.

What it means
MIG divides a GPU into instances. Some GPUs apply a change of the mode only when they are reset. Until then they work as
before.

How it is judged
Compares NVML's current and pending MIG mode of each GPU.

Known exceptions
MIG off is normal, and most GPUs do not support MIG. A machine may have GPUs with and without MIG. A GPU with MIG on but
without instances is judged by mig-instances.

References
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/610/supported-gpus.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import reset
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status, for_each

WORDS = {True: "on", False: "off"}
LOOK = "nvidia-smi --query-gpu=index,mig.mode.current,mig.mode.pending --format=csv"

PENDING = Problem(
    id="mig-change-pending",
    title="A MIG mode change is pending until the GPU is reset",
    why="The mode was changed, but this GPU applies it only when it is reset. The reset fails while a program uses the GPU.",
    action=Action.RESET_GPU,
    status=Status.WARN,
    fixes=(
        reset("Stop what uses the GPU, then reset it (in a virtual machine: reboot)", gpu="<index>", verify=LOOK),
        Fix("Ask the owner of the host to reset the GPU", verify=LOOK, on=("container",)),
    ),
    references=("https://docs.nvidia.com/datacenter/tesla/mig-user-guide/610/supported-gpus.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    leaves_none = all(is_leaving(gpu) for gpu in facts.nvml.reachable.values())
    for finding in for_each(facts.nvml.gpus, judge_gpu):
        yield replace(finding, problem=replace(PENDING, status=Status.FAIL)) if leaves_none else finding


def is_leaving(gpu: Gpu) -> bool:
    """Whether MIG is on without an instance, and off after the next reset: until then no program can use the GPU."""
    return known(lambda: gpu.mig_mode.current and not gpu.mig_mode.pending and not gpu.mig_uuids, False)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    mode = gpu.mig_mode
    if mode.current != mode.pending:
        words = f"GPU {gpu.index}: MIG is {WORDS[mode.current]} and will be {WORDS[mode.pending]} after the next reset"
        yield PENDING.found(words, {"index": gpu.index}, gpu=gpu.index)


def summary(facts: Facts) -> str:
    on = [gpu.index for gpu in facts.nvml.gpus if is_on(gpu)]
    return f"MIG on for GPU {', '.join(map(str, on))}" if on else "MIG off"


def is_on(gpu: Gpu) -> bool:
    return known(lambda: gpu.mig_mode.current, False)


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(PENDING,),
    needs=("nvml",),
)
