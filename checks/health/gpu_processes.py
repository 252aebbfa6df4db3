"""The GPUs are free: no process holds their memory or keeps them busy.

What it means
A forgotten notebook, a model server or another user's job on the same GPU takes memory and time. The next program then runs
slowly or out of memory although nothing is wrong with it.

How it is judged
Looks at the processes that NVML lists, except those of the desktop. If the GPU is busy more than half of the time, other users'
processes are noted; this user's own are not, as the GPU is simply in use. While the GPU is idle, a process that holds more than
a quarter of its memory is noted, as it may be forgotten; it warns if less than a tenth of the memory is left, unless another GPU
is free. A note becomes a cause where something else fails or is slow because of such a process.

Known exceptions
On a shared machine that is in use, this only shows who is using it. A process that is not visible from here (another
container, another PID namespace) is judged by gpu-memory. Under WSL2, NVML lists no processes.

References
https://github.com/pytorch/pytorch/issues/3871
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.gpu_records import Process
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Confidence, Finding, Problem, Status, for_each

MEMORY_SHARE = 0.25
ROOM_SHARE = 0.1
BUSY_PERCENT = 50
NO_JOBS = {
    *("Xorg", "Xwayland", "X", "gnome-shell", "gdm-x-session", "gdm-wayland-ses", "kwin_x11", "kwin_wayland", "plasmashell"),
    *("cinnamon", "xfwm4", "mutter", "sway", "Hyprland", "weston", "gnome-remote-de", "nvidia-persiste", "nvidia-smi"),
    *("nvidia-cuda-mps-server", "nvidia-cuda-mps"),  # they hold the GPU in order to share it
}

OTHERS = Problem(
    id="other-process-using-gpu",
    title="Another process is using the GPU",
    why="A program that you start now shares the GPU's time and memory with it, so it may be slow or run out of memory. The "
    "other process may be meant to run, or it may be forgotten.",
    action=Action.WATCH,
    fixes=(
        look(
            "Show its owner and start time; stop it only with the owner's consent",
            "ps -o pid,user,lstart,args -p <pids>",
            verify="nvidia-smi",
        ),
        look(
            "Use another GPU: list which ones are free", "nvidia-smi --query-gpu=index,memory.used,utilization.gpu --format=csv"
        ),
    ),
    references=("https://github.com/pytorch/pytorch/issues/3871",),
    status=Status.WARN,
    latent=True,
)


def judge(facts: Facts) -> Iterator[Finding]:
    another_is_free = any(is_free(gpu) for gpu in facts.nvml.reachable.values())
    for finding in for_each(facts.nvml.reachable.values(), judge_gpu):
        if facts.texts.alone:
            yield as_clue(finding)
        else:
            yield finding.as_note if another_is_free else finding


def is_free(gpu: Gpu) -> bool:
    return known(lambda: has_room(gpu) and not [*judge_gpu(gpu)], False)


def as_clue(finding: Finding) -> Finding:
    """A text can show a process that has nothing to do with the user's question."""
    return replace(finding, is_clue=True, confidence=Confidence.LIKELY)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    others = [process for process in gpu.processes if process.name not in NO_JOBS]
    busy = utilization(gpu)
    works = busy is not None and busy > BUSY_PERCENT
    large = [process for process in others if (process.used_mib or 0) > gpu.memory_total_mib * MEMORY_SHARE]
    foreign = [process for process in others if process.kind != "graphics" and not process.ours]
    if large and not (works and not foreign):
        holds = found(gpu, large, busy, Confidence.CONFIRMED)
        yield holds.as_note if works or has_room(gpu) else holds
    elif foreign and works:
        # NVML does not report which process keeps the GPU busy.
        yield found(gpu, foreign, busy, Confidence.LIKELY).as_note


def found(gpu: Gpu, processes: list[Process], busy: int | None, confidence: Confidence) -> Finding:
    words = ", ".join(map(describe, processes))
    load = "" if busy is None else f"; the GPU is {busy} % busy"
    evidence = {
        "pids": ",".join(str(process.pid) for process in processes),
        "processes": [process.name or "unknown" for process in processes],
        "used_mib": [process.used_mib for process in processes],
        "memory_mib": gpu.memory_total_mib,
    }
    return OTHERS.found(f"GPU {gpu.index}: {words}{load}", evidence, gpu.index, confidence)


def has_room(gpu: Gpu) -> bool:
    """Whether another program can still work on this GPU."""
    return gpu.memory_free_mib > gpu.memory_total_mib * ROOM_SHARE


def describe(process: Process) -> str:
    used = f" with {process.used_mib:,} MiB" if process.used_mib is not None else ""
    owner = ", yours" if process.ours else ""
    return f"{process.name or 'a process'} (pid {process.pid}{owner}){used}"


def utilization(gpu: Gpu) -> int | None:
    """Per cent of the time in which a kernel ran; None if NVML does not report it (MIG)."""
    return known(lambda: gpu.utilization.gpu_percent)


def summary(facts: Facts) -> str:
    count = sum(len(gpu.processes) for gpu in facts.nvml.reachable.values())
    if not count:
        return "no process is using a GPU"
    return f"{count} process{'es' * (count != 1)} using a GPU: the desktop's, small ones, or your own active jobs"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(OTHERS,),
    needs=("nvml",),
    tags=("memory", "performance", "slurm"),
)
