"""Under WSL2 there is enough memory, both in the virtual machine and on the GPU.

What it means
The virtual machine gets half of the computer's memory by default, and only a part of that can be pinned for fast copies. When
the GPU's memory is full, the Windows driver moves data to the computer's memory instead of failing. Programs become many times
slower, without a message.

How it is judged
The virtual machine's memory (MemTotal) must not be smaller than the memory of the largest GPU, because a model for that GPU is
loaded through it. The GPU must use at most 95 % of its memory.

Known exceptions
Pinned memory is limited on every WSL2, which is not a fault. The Windows desktop uses some of the GPU's memory.

References
https://docs.nvidia.com/cuda/wsl-user-guide/index.html
https://github.com/MicrosoftDocs/WSL/blob/main/WSL/wsl-config.md
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.fixes.common import shut_down_wsl
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status, for_each

FULL = 0.95

PINNED = Problem(
    id="wsl-pinned-memory-limit",
    title="The WSL2 virtual machine has less memory than the GPU",
    why="Data for the GPU passes through this memory, and only a part of it can be pinned. cudaHostAlloc and pin_memory fail "
    "with 'out of memory' although the GPU has free memory, and large models cannot be loaded.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        shut_down_wsl(
            "In Windows: raise the limit in %UserProfile%\\.wslconfig, under [wsl2] (such as memory=32GB, within the computer's "
            "memory), then shut WSL down",
            verify="free -g",
        ),
        Fix("Disable pinned memory in programs: pin_memory=False"),
    ),
    references=("https://github.com/MicrosoftDocs/WSL/blob/main/WSL/wsl-config.md",),
)

FALLBACK = Problem(
    id="wsl-sysmem-fallback-slow",
    title="The GPU's memory is full, and Windows moves data out of it",
    why="Instead of failing, the Windows driver (536.40 and later) moves what does not fit to the computer's memory. Programs "
    "continue, often ten times slower.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Use a smaller batch or model, or end other programs that use the GPU (Windows Task Manager shows them)"),
        Fix(
            "Disable the fallback, so that programs fail instead of slowing down: NVIDIA Control Panel > Manage 3D settings > "
            "CUDA - Sysmem Fallback Policy > Prefer No"
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl != 2:
        raise Skip("this is not WSL2")
    yield from too_small(facts)
    yield from for_each(facts.nvml.gpus, judge_gpu)


def too_small(facts: Facts) -> Iterator[Finding]:
    machine, largest = facts.system.memory_mib["MemTotal"], max((gpu.memory_total_mib for gpu in facts.nvml.gpus), default=0)
    if machine < largest:
        words = f"{machine / 1024:.1f} GiB in the virtual machine, {largest / 1024:.1f} GiB on the GPU"
        yield PINNED.found(words, {"machine_mib": machine, "gpu_mib": largest})


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    if used > FULL * total:
        words = f"{used} of {total} MiB used ({used / total:.0%})"
        yield FALLBACK.found(words, {"used_mib": used, "total_mib": total}, gpu=gpu.index, confidence=Confidence.LIKELY)


def summary(facts: Facts) -> str:
    return f"{facts.system.memory_mib['MemTotal'] / 1024:.1f} GiB in the virtual machine"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(PINNED, FALLBACK),
    needs=("wsl-gpu",),
    tags=("memory",),
)
