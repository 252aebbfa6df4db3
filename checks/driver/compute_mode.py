"""The GPU's compute mode allows this user's programs.

What it means
An administrator can close a GPU to CUDA (prohibited) or let only one process at a time use it (exclusive process). A program
that is refused fails with "all CUDA-capable devices are busy or unavailable".

How it is judged
The check reads the compute mode of every GPU from NVML. If it is exclusive, the check looks for another user's process on
the GPU, or for an MPS server that did not accept this program.

Known exceptions
An exclusive GPU is fine if it is free, if one of your programs uses it, or if the MPS server shares it.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.gpu_records import Process
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Status, for_each

OPEN_IT = Fix(
    "Allow every program to use the GPU",
    "sudo nvidia-smi -i <gpu> -c DEFAULT",
    verify="nvidia-smi --query-gpu=index,compute_mode --format=csv",
    kind="set",
    needs=("root",),
)

PROHIBITED = Problem(
    id="compute-mode-prohibited",
    title="The GPU is closed to CUDA: its compute mode is 'prohibited'",
    why="No program can create a CUDA context on it. An administrator set this mode, often to keep a display GPU free.",
    action=Action.FIX_CONFIG,
    fixes=(OPEN_IT,),
)

BUSY = Problem(
    id="compute-mode-exclusive-busy",
    title="The GPU allows only one process at a time and is in use",
    why="Its compute mode is exclusive. Until that process ends, every other program fails because the GPU is busy.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look(
            "Find the process, then wait for it to end or use another GPU",
            "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
        ),
        OPEN_IT,
    ),
)

HELD_BY_MPS = Problem(
    id="exclusive-gpu-held-by-mps",
    title="An MPS server holds the exclusive GPU, but this program bypasses it",
    why="In compute mode 'exclusive process', the MPS server is the only process that may use the GPU; it serves all its "
    "clients. A program that does not find the MPS daemon's folder opens the GPU directly and fails because the GPU is "
    "busy (46).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Find the MPS daemon's folder and set it for the program",
            "sudo cat /proc/$(pgrep -o -f nvidia-cuda-mps-control)/environ | tr '\\0' '\\n' | grep CUDA_MPS; "
            "export CUDA_MPS_PIPE_DIRECTORY=FOLDER",
            verify="echo get_server_list | nvidia-cuda-mps-control",
            where="shell",
            needs=("root",),
        ),
        Fix(
            "If another user runs MPS: stop it, or restart it for all users (a server serves one user at a time)",
            "echo quit | sudo CUDA_MPS_PIPE_DIRECTORY=FOLDER nvidia-cuda-mps-control && sudo nvidia-cuda-mps-control "
            "-d -multiuser-server",
            risk="disruptive",
            needs=("root", "drain"),
            on=("host",),
            kind="set",
        ),
        OPEN_IT,
    ),
    references=("https://docs.nvidia.com/deploy/mps/",),
)

MPS = "nvidia-cuda-mps"
UNAVAILABLE = 46  # CUDA: all CUDA-capable devices are busy or unavailable


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), lambda gpu: judge_gpu(facts, gpu))


def judge_gpu(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    mode = gpu.compute_mode
    if mode == "prohibited":
        yield PROHIBITED.found(f"GPU {gpu.index}: compute mode is prohibited", {"gpu": gpu.index}, gpu=gpu.index)
    elif mode.startswith("exclusive"):
        holders = [process for process in gpu.processes if holds(process)]
        servers = [process for process in gpu.processes if (process.name or "").startswith(MPS)]
        if servers and is_refused(facts, gpu):
            yield held_by_mps(facts, gpu, servers[0])
        elif is_refused(facts, gpu) or any(not process.ours for process in holders):
            yield from busy(gpu, mode, holders)


def holds(process: Process) -> bool:
    return process.kind == "compute" and not (process.name or "").startswith(MPS)


def held_by_mps(facts: Facts, gpu: Gpu, server: Process) -> Finding:
    folder = facts.environment.get("CUDA_MPS_PIPE_DIRECTORY")
    return HELD_BY_MPS.found(
        f"GPU {gpu.index} is in compute mode {gpu.compute_mode} and in use by {server.name} (pid {server.pid}); "
        f"CUDA_MPS_PIPE_DIRECTORY is {folder or 'not set'}",
        {"gpu": gpu.index, "mode": gpu.compute_mode, "server": server.pid, "folder": folder, "ours": server.ours},
        gpu=gpu.index,
    )


def is_refused(facts: Facts, gpu: Gpu) -> bool:
    """Whether CUDA refused us this GPU: then its holder matters, even if it is our own process."""
    return known(
        lambda: any(device.context_code == UNAVAILABLE for device in facts.cuda.devices if device.bus_id == gpu.bus_id), False
    )


def busy(gpu: Gpu, mode: str, holders: list[Process]) -> Iterator[Finding]:
    for first in holders[:1]:
        yield BUSY.found(
            f"GPU {gpu.index}: compute mode is {mode}, and process {first.pid} ({first.name or 'name not visible'}) uses it",
            {"gpu": gpu.index, "mode": mode, "pids": [process.pid for process in holders]},
            gpu=gpu.index,
            confidence=Confidence.LIKELY if first.ours is None else Confidence.CONFIRMED,
        )


def summary(facts: Facts) -> str:
    return "compute mode " + ", ".join(sorted({mode_of(gpu) for gpu in facts.nvml.reachable.values()}))


def mode_of(gpu: Gpu) -> str:
    return known(lambda: gpu.compute_mode, "not supported")


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(PROHIBITED, BUSY, HELD_BY_MPS),
    needs=("nvml",),
    tags=("slurm",),
)
