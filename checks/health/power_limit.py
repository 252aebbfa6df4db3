"""No GPU runs with a power limit far below its default.

What it means
The driver lowers the clocks so that a GPU stays below its power limit. The limit can be lowered for mining, against heat or
noise, or to save energy; a service may do so at every boot. The GPU is then slower than the same model elsewhere.

How it is judged
Compares the enforced limit with the default of this board, both from NVML. Less than 60 % of the default warns. A limit that is
5 to 40 % below it is noted, as it is usually meant; if a measurement is slow because of it, it is the cause.

Known exceptions
The power cap as a reason for lower clocks (0x4) is normal under full load. Many laptops have no default limit; their firmware
shares the power between CPU and GPU (laptop-power). In a virtual machine the owner of the host may lower the limit.

References
https://github.com/l4rz/reverse-engineering-dell-idrac-to-get-rid-of-gpu-throttling/issues/3
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status, for_each

TOLERANCE = 0.05
OF_LAPTOPS = ("gpu-on-battery", "gpu-power-supply-too-weak", "laptop-power-profile-low")
DELIBERATE = 0.6  # people choose 60 to 90 % of the default to save energy, heat or noise, which costs little speed
LOOK = "nvidia-smi -q -i <address> -d POWER"

LOW_LIMIT = Problem(
    id="sw-power-cap-low-limit",
    title="A GPU's power limit is below its default",
    why="The driver lowers the clocks to stay below the limit, so this GPU is slower under load than it could be.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Restore the default power limit",
            "sudo nvidia-smi -i <address> -pl <default_watts>",
            verify=LOOK,
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        look(
            "Find what lowers the limit at every boot",
            "grep -rsE 'nvidia-smi.* (-pl|--power-limit)' /etc/systemd /etc/cron* /etc/rc.local /etc/udev",
            on=("host",),
        ),
        Fix(
            "Restore the default in a Windows terminal, as administrator",
            "nvidia-smi -pl <default_watts>",
            verify=LOOK,
            on=("wsl2",),
        ),
        Fix("Ask the owner of the host: the limit cannot be set from inside a container", on=("container",)),
        Fix("If the limit falls again: ask the owner of the host or the cloud", on=("vm",)),
    ),
    references=("https://github.com/l4rz/reverse-engineering-dell-idrac-to-get-rid-of-gpu-throttling/issues/3",),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    default, enforced = gpu.default_power_limit_watts, gpu.enforced_power_limit_watts
    if enforced < default * (1 - TOLERANCE):
        evidence = {"address": gpu.selector, "enforced_watts": round(enforced), "default_watts": round(default)}
        found = LOW_LIMIT.found(f"GPU {gpu.index}: {enforced:.0f} W instead of {default:.0f} W", evidence, gpu.index)
        found = replace(found, causes=OF_LAPTOPS) if "Laptop" in gpu.name else found
        yield found if enforced < default * DELIBERATE else found.as_note


def summary(facts: Facts) -> str:
    limits = sorted({round(gpu.enforced_power_limit_watts) for gpu in facts.nvml.reachable.values()})
    return f"power limit {', '.join(map(str, limits))} W"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(LOW_LIMIT,),
    needs=("nvml",),
    tags=("performance",),
)
