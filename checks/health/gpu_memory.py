"""The memory of the GPUs is free, or held by visible processes.

What it means
A container sees only its own processes. If the memory of its GPU is full anyway, something outside holds it: another
container, the host, or a process that died without freeing its memory.

How it is judged
Compares the memory in use, without what the driver reserves, with what the processes listed by NVML hold. Warns if memory
that no listed process holds exceeds half of the GPU's memory.

Known exceptions
Processes that NVML lists are judged by gpu-processes, even if NVML does not report how much memory they hold (MIG, WSL2). The
desktop under Windows holds memory that WSL2 cannot see. Inside a container nvidia-smi lists no process: in a text, memory in use
there counts only where it explains a failure.

References
https://github.com/pytorch/pytorch/issues/3871
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.fixes.common import look
from gpudoctor.judging.texts.rules.jobs import held_by_program
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

UNKNOWN_SHARE = 0.5

IN_USE = Problem(
    id="gpu-memory-in-use",
    title="GPU memory is in use, but not by any visible process",
    why="The process that holds it is outside this container, or died without freeing its memory.",
    action=Action.WATCH,
    fixes=(
        Fix(
            "On the host: list the processes that hold it",
            "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
            on=("container",),
        ),
        look(
            "List all processes that have the GPU device open, including those that NVML does not list",
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
        raise Skip("under WSL, Windows processes are not visible")
    own_mib, is_hidden = 1024 * held_by_program(facts), hides_processes(facts)
    found = for_each(facts.nvml.reachable.values(), lambda gpu: judge_gpu(gpu, own_mib))
    yield from (replace(finding, is_clue=True) if is_hidden else finding for finding in found)


HIDES = re.compile(
    r"""
    \b(?:docker|podman|nerdctl|crictl|lxc|incus|pct)\ (?:compose\ )?(?:exec|enter)\b
    | \b(?:kubectl|oc|k)\ [^\n|;&]*?\b(?:exec|debug)\b
    | \b(?:singularity|apptainer)\ (?:exec|run|shell)\b
    | \bnvidia-cuda-mps-(?:control|server)\b
    | ^\s*(?:root|\w+)@[0-9a-f]{12}:
    """,
    re.MULTILINE | re.VERBOSE,
)


def hides_processes(facts: Facts) -> bool:
    """Whether a text shows a container or MPS, whose clients nvidia-smi does not list: alone, their memory is no fault."""
    if not facts.texts.alone:
        return False
    return facts.shown.is_in_container or any(HIDES.search(passage.text) for text in facts.texts.all for passage in text.passages)


def judge_gpu(gpu: Gpu, own_mib: float) -> Iterator[Finding]:
    """own_mib: what the program in a given text holds by its own words; inside a container, nvidia-smi does not list it."""
    sizes = [process.used_mib for process in gpu.processes]
    if None in sizes:
        raise Skip(f"GPU {gpu.index}: NVML does not report how much memory each process holds", Skip.UNSUPPORTED)
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    unknown = used - sum(size or 0 for size in sizes)
    if unknown - own_mib > total * UNKNOWN_SHARE:
        evidence = {"used_mib": used, "unknown_mib": unknown, "memory_mib": total}
        message = f"GPU {gpu.index}: {used:,} of {total:,} MiB are in use, {unknown:,} MiB of that by no visible process"
        yield replace(IN_USE.found(message, evidence, gpu.index), because="gpu-held-by-leftover-process")


def summary(facts: Facts) -> str:
    free = [gpu.memory_total_mib - gpu.memory_used_mib for gpu in facts.nvml.reachable.values()]
    return f"at least {min(free):,} MiB free on each GPU" if len(free) > 1 else f"{min(free):,} MiB of GPU memory free"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(IN_USE,),
    needs=("nvml",),
    tags=("memory",),
)
