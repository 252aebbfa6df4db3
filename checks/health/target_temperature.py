"""No GPU is set to stay far cooler than its board allows.

What it means
The driver lowers the clocks to keep a GPU at its target temperature. `nvidia-smi -gtt` and tools for fans or overclocking can set
a low target; the GPU then slows down although it is far from hot.

How it is judged
NVML reports the target and the highest one that the board allows. Usual targets are a few degrees below the highest. A target
that is 15 °C or more below it is a note, and the cause if the driver lowers the clocks because of heat.

Known exceptions
Most GPUs of data centres have no target. Vendors of laptops may set a low one for a quiet fan.

References
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status, for_each

FAR_BELOW_C = 15  # boards are delivered with targets up to about 10 °C below the highest
LOOK = "nvidia-smi -q -i <address> -d TEMPERATURE"

LOWERED = Problem(
    id="gpu-target-temperature-lowered",
    title="A GPU's target temperature is set very low",
    why="The driver lowers the clocks to stay at the target, so under load this GPU is slower than it could be.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Raise the target to the highest that the board allows",
            "sudo nvidia-smi -i <address> -gtt <highest_c>",
            verify=LOOK,
            on=("host",),
            kind="set",
            needs=("root",),
            undo="sudo nvidia-smi -i <address> -gtt <target_c>",
        ),
        look(
            "Find what sets it at every boot",
            "grep -rsE 'nvidia-smi.* (-gtt|--gpu-target-temp)' /etc/systemd /etc/cron* /etc/rc.local /etc/udev",
            on=("host",),
        ),
        Fix("Ask the owner of the host: the target cannot be set from inside a container", on=("container", "wsl2")),
    ),
    references=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    target, highest = gpu.target_temperature_c, gpu.highest_target_temperature_c
    if 0 < target <= highest - FAR_BELOW_C:
        evidence = {"address": gpu.selector, "target_c": target, "highest_c": highest}
        yield LOWERED.found(
            f"GPU {gpu.index}: the target is {target} °C, the board allows {highest} °C", evidence, gpu.index
        ).as_note


def summary(facts: Facts) -> str:
    targets = sorted({gpu.target_temperature_c for gpu in facts.nvml.reachable.values()})
    return f"target temperature {', '.join(map(str, targets))} °C"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(LOWERED,),
    needs=("nvml",),
    tags=("performance",),
)
