"""The memory of the GPUs is free, or held by processes that can be seen.

What it means
A container sees only its own processes. When the memory of its GPU is full all the same, somebody outside holds it: another
container, the host, or a process that died and left its memory behind.

How it is judged
Memory in use, without what the driver reserves, against what the processes that NVML names hold. More than half of the
memory in use by none of them warns.

Known exceptions
Processes that NVML names are judged by gpu-processes, also where it does not say how much they hold (MIG, WSL2). The desktop
under Windows holds memory that WSL2 cannot see.

References
https://github.com/pytorch/pytorch/issues/3871
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

UNKNOWN_SHARE = 0.5

IN_USE = Problem(
    id="gpu-memory-in-use",
    title="Somebody who cannot be seen from here holds the GPU's memory",
    why="No process that is visible here holds it: it is outside this container, or died and left its memory behind.",
    action=Action.WATCH,
    fixes=(
        Fix(
            "On the host: see who holds it",
            "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
            on=("container",),
        ),
        look(
            "See who has the GPU's device open, also processes that NVML does not name",
            "sudo fuser -v /dev/nvidia*",
            verify="nvidia-smi",
            on=("host",),
            root=True,
        ),
    ),
    references=("https://github.com/pytorch/pytorch/issues/3871",),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the processes of Windows cannot be seen")
    yield from for_each(facts.nvml.reachable.values(), judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    sizes = [process.used_mib for process in gpu.processes]
    if None in sizes:
        raise Skip(f"GPU {gpu.index}: NVML does not say how much memory each process holds", Skip.UNSUPPORTED)
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    unknown = used - sum(size or 0 for size in sizes)
    if unknown > total * UNKNOWN_SHARE:
        evidence = {"used_mib": used, "unknown_mib": unknown, "memory_mib": total}
        message = f"GPU {gpu.index}: {used:,} of {total:,} MiB are in use, {unknown:,} of them by nobody who can be seen"
        yield IN_USE.found(message, evidence, gpu.index)


def summary(facts: Facts) -> str:
    free = [gpu.memory_total_mib - gpu.memory_used_mib for gpu in facts.nvml.reachable.values()]
    return f"{min(free):,} MiB of GPU memory free" + (" or more on each" if len(free) > 1 else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(IN_USE,),
    needs=("nvml",),
)
