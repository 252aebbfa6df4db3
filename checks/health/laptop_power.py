"""A laptop's GPU may draw the power that its board allows.

What it means
The firmware of a laptop divides its power between CPU and GPU. On battery, with a weak charger or in a quiet profile the GPU gets
a fraction of it, and nvidia-smi cannot change that. With Dynamic Boost the service nvidia-powerd raises the limit under load.

How it is judged
NVML names the power supply; the kernel has the profile, the batteries, and whether nvidia-powerd runs. A charger that is too
weak warns. A battery, a profile for low power, and a limit that stays at its default below the maximum without nvidia-powerd
are notes; they count if they explain a low power limit or a slow measurement.

Known exceptions
Firmware that reports no profile can lower the power too. Nvidia-powerd supports laptops since Ampere, and not all of them.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
https://docs.kernel.org/userspace-api/sysfs-platform_profile.html
https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/dynamicboost.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.judging.driver.dynamic_boost import BOOST
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status, for_each

HEADER = "https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h"
PROFILES = "https://docs.kernel.org/userspace-api/sysfs-platform_profile.html"
LAPTOP = re.compile(r"\b(?:Laptop|Mobile|Notebook)\b|\bMax-Q\b(?! Workstation)")
LOW_PROFILES = ("low-power", "cool", "quiet")
WORTH = 1.05  # of the default limit: less is not worth a service
LOOK = "nvidia-smi -q -i <address> -d POWER"

ON_BATTERY = Problem(
    id="gpu-on-battery",
    title="The GPU runs on battery",
    why="On battery, the firmware of a laptop lets the GPU draw a fraction of its power, so it is much slower.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(Fix("Plug in the charger, directly and not through a dock", verify=LOOK),),
    references=(HEADER,),
)
TOO_WEAK = Problem(
    id="gpu-power-supply-too-weak",
    title="The charger is too weak for the GPU",
    why="The driver reports a power supply that cannot feed the GPU at full load, so the firmware lowers its power limit.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(Fix("Use the charger that came with the laptop, directly and not through a dock or USB-C", verify=LOOK),),
    references=(HEADER,),
)
LOW_PROFILE = Problem(
    id="laptop-power-profile-low",
    title="The laptop's power profile lowers the power of its GPU",
    why="The firmware gives the GPU less power in a profile for silence or low power. nvidia-smi cannot raise this limit.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Select the performance profile",
            "powerprofilesctl set performance",
            verify=LOOK,
            on=("host",),
            kind="set",
            undo="powerprofilesctl set power-saver",
        ),
        look("Show which profile the firmware has", "cat /sys/firmware/acpi/platform_profile", on=("host",)),
    ),
    references=(PROFILES,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), lambda gpu: judge_gpu(facts, gpu))


def judge_gpu(facts: Facts, gpu: Gpu) -> Iterator[Finding]:
    supply = known(lambda: gpu.power_source, "")
    limit = known(lambda: f"its power limit is {gpu.enforced_power_limit_watts:.0f} W", "its power limit is unknown")
    if supply == "battery":
        yield found(ON_BATTERY, gpu, f"it runs on battery, {limit}").as_note
    elif supply == "undersized":
        yield found(TOO_WEAK, gpu, f"its power supply is too weak, {limit}")
    elif not LAPTOP.search(gpu.name):
        raise Skip("not a laptop's GPU", Skip.NOT_APPLICABLE)
    elif facts.inventory.has_battery:  # otherwise it is a board for other computers with a laptop's GPU
        yield from judge_profile(facts, gpu, limit)


def judge_profile(facts: Facts, gpu: Gpu, limit: str) -> Iterator[Finding]:
    profile = facts.inventory.power_profile
    if profile in LOW_PROFILES:
        yield found(LOW_PROFILE, gpu, f"the power profile is {profile}, {limit}").as_note
        return
    now, usual = known(lambda: gpu.enforced_power_limit_watts, 0.0), known(lambda: gpu.default_power_limit_watts, 0.0)
    most = known(lambda: gpu.maximum_power_limit_watts, 0.0)
    if 0 < now <= usual and most > usual * WORTH and not known(lambda: facts.services.is_running("nvidia-powerd"), True):
        state = "does not run" if facts.inventory.has_dynamic_boost else "is not installed"
        words = f"{limit} of at most {most:.0f} W, and nvidia-powerd {state}"
        yield found(BOOST, gpu, words, Confidence.LIKELY).as_note


def found(problem: Problem, gpu: Gpu, words: str, confidence: Confidence = Confidence.CONFIRMED) -> Finding:
    return problem.found(f"GPU {gpu.index}: {words}", {"address": gpu.selector}, gpu.index, confidence)


def summary(facts: Facts) -> str:
    profile = known(lambda: facts.inventory.power_profile, "")
    return "on mains power" + (f", power profile {profile}" if profile else "")


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(ON_BATTERY, TOO_WEAK, LOW_PROFILE, BOOST),
    needs=("nvml",),
    tags=("performance",),
)
