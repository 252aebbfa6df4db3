"""No GPU is set to clocks below its default.

What it means
On data-centre GPUs an administrator can set the clocks at which programs run. If such a setting is left in place, the GPU is
slower than its siblings.

How it is judged
Compares the graphics clock that is set with the default that NVML reports for this GPU. More than 5 % below the default
warns. So does a GPU under full load at less than half of its highest SM clock, if NVML names a setting as the only reason.

Known exceptions
The default may be far below the highest clock (Tesla T4). GeForce cards do not have this setting. Clocks locked by nvidia-smi
-lgc cannot be read back: on an idle GPU they go unnoticed.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status, for_each

TOLERANCE = 0.05
BUSY_PERCENT, LOCKED_SHARE = 90, 0.5
SETTING = 0x2  # nvmlClocksEventReasonApplicationsClocksSetting, also for locked clocks

LOWERED = Problem(
    id="application-clocks-lowered",
    title="A GPU is set to run below its default clocks",
    why="Application clocks were set and never restored, so every program on this GPU runs slower than it could.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Restore the default clocks",
            "sudo nvidia-smi -i <address> -rac; sudo nvidia-smi -i <address> -rgc",
            verify="nvidia-smi -q -i <address> -d CLOCK",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix("Ask the owner of the host: clocks cannot be set from inside a container", on=("container", "wsl2")),
    ),
    references=("https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h",),
    status=Status.WARN,
)


LOCKED = replace(
    LOWERED,
    id="clocks-locked-low",
    title="A GPU's clocks are locked far below their maximum",
    why="Someone locked the clocks (nvidia-smi -lgc, DCGM, a benchmark script), and the lock stays until it is removed or the "
    "driver is reloaded.",
)


def locked_mhz(gpu: Gpu) -> int | None:
    """The SM clock of a busy GPU that only a setting keeps below half of its maximum; None if not so, or unknown."""
    busy = known(lambda: gpu.utilization.gpu_percent) or 0
    now, most = known(lambda: gpu.clocks_mhz["sm"], 0), known(lambda: gpu.maximum_clocks_mhz["sm"], 0)
    only_a_setting = known(lambda: gpu.clock_reasons) == SETTING
    return now if busy >= BUSY_PERCENT and only_a_setting and 0 < now < most * LOCKED_SHARE else None


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    if locked := locked_mhz(gpu):
        maximum = gpu.maximum_clocks_mhz["sm"]
        words = f"GPU {gpu.index}: {locked} of {maximum} MHz under full load, and a setting is the only reason"
        yield LOCKED.found(words, {"address": gpu.selector, "sm_mhz": locked, "maximum_mhz": maximum}, gpu.index)
        return
    now, default = gpu.get("ApplicationsClock.graphics"), gpu.get("DefaultApplicationsClock.graphics")
    if now < default * (1 - TOLERANCE):
        evidence = {"address": gpu.selector, "graphics_mhz": now, "default_mhz": default}
        yield LOWERED.found(f"GPU {gpu.index}: {now} MHz instead of {default} MHz", evidence, gpu.index)


def graphics_mhz(gpu: Gpu) -> int | None:
    """None if NVML does not report it for this GPU."""
    return known(lambda: gpu.application_clocks_mhz.get("graphics"))


def summary(facts: Facts) -> str:
    reported = map(graphics_mhz, facts.nvml.reachable.values())
    clocks = sorted({mhz for mhz in reported if mhz is not None})
    return f"application clocks {', '.join(map(str, clocks))} MHz (default)"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(LOWERED, LOCKED),
    needs=("nvml",),
    tags=("performance",),
)
