"""The driver keeps GPUs initialised between programs if their start would take long.

What it means
Without a client the driver shuts a GPU down. The next program waits until the GPU is initialised again, and state such as clocks,
power limits and ECC counters is lost. The persistence daemon is a client that stays connected.

How it is judged
A note, not a warning, as no program gets slower. It is made if NVML takes more than two seconds to start, persistence mode is
off, nvidia-persistenced does not run and no display uses the GPU.

Known exceptions
Laptops switch the GPU off on purpose. A desktop session keeps its GPU open. For a container the daemon runs on the host. Mode
"on" without the daemon is the older method, and is fine.

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
    title="The GPU is initialised again for every program, which takes long",
    why="Persistence mode is off and nothing keeps the GPU open, so the driver shuts it down after every program. Each program "
    "waits for the GPU to start, and configured clocks and power limits are lost.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Run the persistence daemon",
            command="sudo systemctl enable --now nvidia-persistenced",
            verify="nvidia-smi --query-gpu=persistence_mode --format=csv && time nvidia-smi -L",
            kind="restart",
            needs=("root",),
            undo="sudo systemctl disable --now nvidia-persistenced",
        ),
        Fix(
            "Without systemd: enable persistence mode until the next boot",
            command="sudo nvidia-smi -pm 1",
            verify="time nvidia-smi -L",
            kind="set",
            needs=("root",),
            undo="sudo nvidia-smi -pm 0",
        ),
    ),
)

SLOW_SECONDS = 2
MOBILE = re.compile(r"laptop|mobile|with max-q|\d{3,4}m\b", re.I)
HOLDERS = ("nvidia-persistenced", "Xorg", "gnome-shell")


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the driver is in Windows")
    if facts.container.engine:
        raise Skip("the persistence daemon runs on the host, not in a container")
    gpus = facts.nvml.reachable.values()
    off = [gpu.index for gpu in gpus if not (gpu.persistence_mode or MOBILE.search(gpu.name))]
    seconds = facts.nvml.init_seconds
    if off and seconds > SLOW_SECONDS and not is_held(facts):
        which = ", ".join(map(str, off))
        words = f"persistence mode is off on GPU {which}, nothing keeps it open, and NVML took {seconds:.1f} s to start"
        yield SLOW_START.found(words, {"seconds": seconds, "gpus": off}).as_note


def is_held(facts: Facts) -> bool:
    """Whether the daemon or a display keeps the GPU open."""
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
    tags=("performance",),
)
