"""Under WSL2 there is memory enough on both sides: in the virtual machine for the GPU's data, and on the GPU itself.

What it means
The virtual machine gets half of the computer's memory by default, and only a part of that can be pinned for fast copies. When
the GPU's own memory is full, Windows' driver moves data to the computer's memory instead of failing: programs become many
times slower, without a message.

How it is judged
The virtual machine's memory (MemTotal) against the memory of the largest GPU: a model that fits the GPU must fit through it.
The GPU's used memory against 95 % of what it has.

Known exceptions
Limited pinned memory is so on every WSL2 and is no fault by itself. Windows' desktop uses some of the GPU's memory.

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
    title="The WSL2 machine has less memory than the GPU",
    why="What goes to the GPU passes through this memory, and only a part of it can be pinned: cudaHostAlloc and pin_memory fail "
    "with 'out of memory' although the GPU has room, and large models cannot be loaded.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        shut_down_wsl(
            "Give WSL more, as far as the computer has it: in %UserProfile%\\.wslconfig of Windows, under [wsl2], a line such as "
            "memory=32GB, then",
            verify="free -g",
        ),
        Fix("Do without pinned memory in programs: pin_memory=False"),
    ),
    references=("https://github.com/MicrosoftDocs/WSL/blob/main/WSL/wsl-config.md",),
)

FALLBACK = Problem(
    id="wsl-sysmem-fallback-slow",
    title="The GPU's memory is full, and Windows moves data out of it",
    why="Instead of failing, the Windows driver (536.40 and later) puts what does not fit into the computer's memory. Programs "
    "go on, often ten times slower.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Use less: a smaller batch or model, or end another program that uses the GPU (Windows' Task Manager shows them)"),
        Fix("Rather fail than be slow: NVIDIA Control Panel > Manage 3D settings > CUDA - Sysmem Fallback Policy > Prefer No"),
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
        words = f"{used} of {total} MiB are used ({used / total:.0%})"
        yield FALLBACK.found(words, {"used_mib": used, "total_mib": total}, gpu=gpu.index, confidence=Confidence.LIKELY)


def summary(facts: Facts) -> str:
    return f"{facts.system.memory_mib['MemTotal'] / 1024:.1f} GiB in the virtual machine"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(PINNED, FALLBACK),
    needs=("wsl-gpu",),
)
