"""The driver keeps its GPUs initialised between programs where their start would take long.

What it means
Without a client the driver shuts a GPU down; the next program waits until it is initialised again, and settings such as
clocks, power limits and ECC counters are lost. A persistence daemon is a client that stays.

How it is judged
Only a start of NVML of more than two seconds counts, and only where persistence mode is off, nvidia-persistenced does not run
and no display holds the GPU.

Known exceptions
Laptops are meant to switch the GPU off. A desktop session holds its GPU. In a container the daemon runs on the host. Mode "on"
without the daemon is the older way, and is fine.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

SLOW_START = Problem(
    id="persistence-mode-off-slow-init",
    title="The GPU is initialised anew for every program, which takes long",
    why="Persistence mode is off and nothing keeps the GPU open, so that the driver shuts it down after every program. Each "
    "start waits for it, and clocks and power limits that were set are lost.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Run the persistence daemon",
            command="sudo systemctl enable --now nvidia-persistenced",
            verify="nvidia-smi --query-gpu=persistence_mode --format=csv && time nvidia-smi -L",
            kind="restart",
            needs=("root",),
        ),
        Fix(
            "Without systemd, until the next boot",
            command="sudo nvidia-smi -pm 1",
            verify="time nvidia-smi -L",
            kind="set",
            needs=("root",),
        ),
    ),
)

SLOW_SECONDS = 2
MOBILE = re.compile(r"laptop|mobile|with max-q|\d{3,4}m\b", re.I)
HOLDERS = ("nvidia-persistenced", "Xorg", "gnome-shell")


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the driver lives in Windows")
    if facts.container.engine:
        raise Skip("the persistence daemon is the host's matter")
    gpus = facts.nvml.reachable.values()
    off = [gpu.index for gpu in gpus if not (gpu.persistence_mode or MOBILE.search(gpu.name))]
    seconds = facts.nvml.init_seconds
    if off and seconds > SLOW_SECONDS and not is_held(facts):
        words = (
            f"persistence mode is off on GPU {', '.join(map(str, off))}, nothing holds it, and NVML took {seconds:.1f} s to start"
        )
        yield SLOW_START.found(words, {"seconds": seconds, "gpus": off})


def is_held(facts: Facts) -> bool:
    """By the daemon or by a display."""
    if any(facts.services.is_running(name) for name in HOLDERS):
        return True
    return any(shows_picture(gpu) for gpu in facts.nvml.reachable.values())


def shows_picture(gpu: Gpu) -> bool:
    return known(lambda: gpu.display_active, False)


def summary(facts: Facts) -> str:
    modes = {"on" if gpu.persistence_mode else "off" for gpu in facts.nvml.reachable.values()}
    return f"persistence mode {' and '.join(sorted(modes))}; NVML starts in {1000 * facts.nvml.init_seconds:.0f} ms"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(SLOW_START,),
    needs=("nvml",),
)
