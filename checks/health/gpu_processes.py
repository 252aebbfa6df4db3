"""The GPUs are free: no process holds their memory or keeps them busy.

What it means
A forgotten notebook, a model server or another user's job on the same GPU takes memory and time: the next program runs slowly
or out of memory for no reason of its own.

How it is judged
The processes that NVML names, without the desktop's. Each that holds more than a quarter of the GPU's memory warns. One of this
user's own does so only while the GPU is idle: it may be forgotten; while it works, the GPU is simply in use. Where the GPU is
busy for more than half of the time, other people's warn too.

Known exceptions
On a shared machine at work this only says who works. A process that cannot be seen from here (another container, another process
namespace) is judged by gpu-memory. Under WSL2 NVML names no processes.

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
BUSY_PERCENT = 50
NO_JOBS = {
    *("Xorg", "Xwayland", "X", "gnome-shell", "gdm-x-session", "gdm-wayland-ses", "kwin_x11", "kwin_wayland", "plasmashell"),
    *("cinnamon", "xfwm4", "mutter", "sway", "Hyprland", "weston", "gnome-remote-de", "nvidia-persiste", "nvidia-smi"),
    *("nvidia-cuda-mps-server", "nvidia-cuda-mps"),  # they hold the GPU to share it
}

OTHERS = Problem(
    id="other-process-using-gpu",
    title="Another process holds the GPU",
    why="What you start now shares the GPU's time and memory with it: it is slower, or finds too little memory. It may be a "
    "job that is meant to run, or one that was forgotten.",
    action=Action.WATCH,
    fixes=(
        look(
            "See whose it is and since when; stop it only with its owner's consent",
            "ps -o pid,user,lstart,args -p <pids>",
            verify="nvidia-smi",
        ),
        look("Use another GPU: see which ones are free", "nvidia-smi --query-gpu=index,memory.used,utilization.gpu --format=csv"),
    ),
    references=("https://github.com/pytorch/pytorch/issues/3871",),
    status=Status.WARN,
    latent=True,
)


def judge(facts: Facts) -> Iterator[Finding]:
    found = for_each(facts.nvml.reachable.values(), judge_gpu)
    yield from (as_clue(finding) for finding in found) if facts.texts.alone else found


def as_clue(finding: Finding) -> Finding:
    """A text that shows a process does not tell whether it is the one that somebody asks about."""
    return replace(finding, is_clue=True, confidence=Confidence.LIKELY)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    others = [process for process in gpu.processes if process.name not in NO_JOBS]
    busy = utilization(gpu)
    works = busy is not None and busy > BUSY_PERCENT
    large = [process for process in others if (process.used_mib or 0) > gpu.memory_total_mib * MEMORY_SHARE]
    foreign = [process for process in others if process.kind != "graphics" and not process.ours]
    if large and not (works and not foreign):
        yield found(gpu, large, busy, Confidence.CONFIRMED)
    elif foreign and works:
        # NVML does not say whose work it is that keeps the GPU busy.
        yield found(gpu, foreign, busy, Confidence.LIKELY)


def found(gpu: Gpu, processes: list[Process], busy: int | None, confidence: Confidence) -> Finding:
    words = ", ".join(map(describe, processes))
    load = "" if busy is None else f"; the GPU is busy for {busy} % of the time"
    evidence = {
        "pids": ",".join(str(process.pid) for process in processes),
        "processes": [process.name or "unknown" for process in processes],
        "used_mib": [process.used_mib for process in processes],
        "memory_mib": gpu.memory_total_mib,
    }
    return OTHERS.found(f"GPU {gpu.index}: {words}{load}", evidence, gpu.index, confidence)


def describe(process: Process) -> str:
    used = f" with {process.used_mib:,} MiB" if process.used_mib is not None else ""
    owner = ", yours" if process.ours else ""
    return f"{process.name or 'a process'} (pid {process.pid}{owner}){used}"


def utilization(gpu: Gpu) -> int | None:
    """Per cent of the time in which a kernel ran; None where NVML does not say (MIG)."""
    return known(lambda: gpu.utilization.gpu_percent)


def summary(facts: Facts) -> str:
    count = sum(len(gpu.processes) for gpu in facts.nvml.reachable.values())
    if not count:
        return "no process on a GPU"
    return f"{count} process{'es' * (count != 1)} on a GPU, of the desktop, small or your own at work"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(OTHERS,),
    needs=("nvml",),
)
