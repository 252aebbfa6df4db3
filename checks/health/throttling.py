"""No GPU is slowed down by heat, by a power brake, or by its hardware.

What it means
NVML reports why the clocks are not higher. Most reasons are part of normal work. Four are not: hardware slowdown (0x8),
software thermal slowdown (0x20), hardware thermal slowdown (0x40) and the external power brake (0x80).

How it is judged
Reads the reasons at this moment. The power brake and the hardware thermal slowdown cut the clocks to half or less, and fail.
Software thermal slowdown warns; if the memory is at its limit and the core is below its own, the memory is the cause. The
finding says if the board's fans stand still or if the board has no fan. Hardware slowdown without a more specific reason
warns as likely: it also appears briefly when the power state changes.

Known exceptions
Idle (0x1), application clocks (0x2), the power cap (0x4), sync boost (0x10) and the display (0x100) are not faults. How long
a GPU was slowed down in the past is shown, not judged. A GPU that is idle now may still get too hot under load.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
https://github.com/leptonai/gpud/pull/330
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import BMC, BMC_ON_POWER, FANS, PHYSICAL, airflow, look
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status, for_each

HEADER = "https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h"
HARDWARE, SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE = 0x8, 0x20, 0x40, 0x80

LOOK = "nvidia-smi -q -i <address> -d PERFORMANCE,TEMPERATURE,CLOCK"
COOL = airflow(LOOK)
OF_LAPTOP = Fix(
    "Let it cool: clean its vents and fans, put it on a hard surface, plug it in, and choose the firmware's performance mode",
    verify=LOOK,
)
AIRFLOW = Fix(
    "Blow air through the board, which has no fan: server fans, or in a desktop case a blower with a shroud",
    verify=LOOK,
    on=(*PHYSICAL, "container", "wsl2"),
)
FANS = FANS
STILL = (
    Fix("Let the driver control the fans again: stop programs that set them, and remove their settings", verify=LOOK),
    Fix("If they still do not turn: switch off, remove any cable that blocks a fan, and have broken fans replaced", verify=LOOK),
)
LESS_POWER = Fix(
    "Until then: lower the power limit (costs some speed)",
    "sudo nvidia-smi -i <address> -pl <lower_watts>",
    on=("host",),
    kind="set",
    needs=("root",),
)
TO_CHOOSE = replace(LESS_POWER, kind="manual")

BRAKE = Problem(
    id="hw-power-brake",
    title="The external power brake slows the GPU down",
    why="A power supply, a missing power cable or the BMC asserts the brake signal, which cuts the clocks to half or less.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        BMC_ON_POWER,
        Fix(
            "Check the power supplies, their redundancy and every power plug of the board; replace failed parts",
            verify=LOOK,
            on=(*PHYSICAL, "container", "wsl2"),
        ),
        Fix(
            "If the server does not list this GPU as supported: set its thermal and power profile in the BMC",
            on=(*BMC, "container"),
        ),
    ),
    references=(
        HEADER,
        "https://github.com/leptonai/gpud/pull/330",
        "https://github.com/l4rz/reverse-engineering-dell-idrac-to-get-rid-of-gpu-throttling/issues/3",
    ),
)
HARDWARE_HOT = Problem(
    id="hw-thermal-slowdown",
    title="The GPU is so hot that its hardware cuts the clocks",
    why="Above its slowdown temperature the GPU halves its clocks to protect itself. If it gets hotter, it switches off.",
    action=Action.FIX_CONFIG,
    fixes=(COOL, FANS, LESS_POWER),
    references=(HEADER,),
)
MEMORY_HOT = Problem(
    id="xid-free-sw-thermal-memory-hot",
    title="The GPU's memory is too hot, although its core is cool",
    why="The memory is at its highest operating temperature, so the driver lowers the clocks. Check pads, backplate and airflow.",
    action=Action.FIX_CONFIG,
    fixes=(COOL, FANS, LESS_POWER, Fix("If the card is out of warranty: replace the thermal pads of the memory")),
    references=(HEADER,),
    status=Status.WARN,
)
SOFTWARE_HOT = Problem(
    id="sw-thermal-slowdown",
    title="The driver lowers the clocks because the GPU is hot",
    why="The GPU is at its highest operating temperature. It works, but slower than it could.",
    action=Action.WATCH,
    fixes=(COOL, FANS, LESS_POWER),
    references=(HEADER,),
    status=Status.WARN,
)
SLOWED = Problem(
    id="hw-slowdown",
    title="The hardware lowers the GPU's clocks and does not report why",
    why="The cause is heat, the power brake or a power spike. It also appears briefly when the power state changes: check again.",
    action=Action.WATCH,
    fixes=(look("Check again under load", "nvidia-smi -q -i <address> -d PERFORMANCE"), FANS),
    references=(HEADER,),
    status=Status.WARN,
)

LOW_LIMIT = replace(
    SOFTWARE_HOT,
    title="The GPU's maximum operating temperature is set very low",
    why="The driver lowers the clocks at this temperature, although the GPU stands far more. The firmware of the GPU or of the "
    "computer sets it, sometimes for a quiet or cool mode.",
    fixes=(
        Fix("Update the firmware (BIOS) of the computer, and choose its mode for performance", verify=LOOK),
        look("Show the limits; the maximum operating temperature is usually 80 °C or more", "nvidia-smi -q -d TEMPERATURE"),
        Fix("On a laptop: disable programs that lower the limit, such as thermald or the vendor's power manager", verify=LOOK),
    ),
)
STANDS_STILL = "The fan of a hot GPU stands still"
WHY_STILL = "The GPU is so hot that its clocks are lowered, and its fan does not turn: it is set to 0 %, or is broken."
LOWEST_USUAL, USUAL_GAP = 70, 25  # °C: an operating limit below the first, and this far below the slowdown temperature
NEVER_ALONE = re.compile(r"GeForce|Laptop|Max-Q|Mobile|Orin|Thor|GB\d|SXM|HBM3|H200$|B[23]00")
HOT = (HARDWARE_HOT, MEMORY_HOT, SOFTWARE_HOT)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    reasons = gpu.clock_reasons
    if reasons & POWER_BRAKE:
        yield found(BRAKE, gpu, "the external power brake is on")
    if reasons & HARDWARE_THERMAL:
        yield found(HARDWARE_HOT, gpu, f"hardware thermal slowdown at {gpu.temperature_c} °C")
    elif reasons & SOFTWARE_THERMAL and memory_is_the_cause(gpu):
        limit = gpu.temperature_limit_c("memory")
        yield found(MEMORY_HOT, gpu, f"memory at {gpu.memory_temperature_c} °C (limit {limit}), core at {gpu.temperature_c} °C")
    elif reasons & SOFTWARE_THERMAL:
        limit = low_limit(gpu)
        words = f"software thermal slowdown at {gpu.temperature_c} °C"
        hot = found(LOW_LIMIT if limit else SOFTWARE_HOT, gpu, f"{words}, the limit is {limit} °C" if limit else words)
        yield replace(hot, causes=("gpu-target-temperature-lowered",))
    elif reasons & HARDWARE and not reasons & POWER_BRAKE:
        yield found(SLOWED, gpu, "hardware slowdown, with no more specific reason", Confidence.LIKELY)


def low_limit(gpu: Gpu) -> int:
    """The maximum operating temperature, if it is far below those of other GPUs and below what its hardware allows; else 0."""
    highest = known(lambda: gpu.temperature_limit_c("max_operating"), 0)
    slowdown = known(lambda: gpu.temperature_limit_c("slowdown"), 0)
    return highest if 0 < highest < LOWEST_USUAL and slowdown - highest >= USUAL_GAP else 0


def memory_is_the_cause(gpu: Gpu) -> bool:
    try:
        hot = gpu.memory_temperature_c >= gpu.temperature_limit_c("memory")
        return hot and gpu.temperature_c < gpu.temperature_limit_c("max_operating")
    except Skip:  # most GPUs with GDDR do not report their memory temperature
        return False


def found(problem: Problem, gpu: Gpu, words: str, confidence: Confidence = Confidence.CONFIRMED) -> Finding:
    evidence = {
        "address": gpu.selector,
        "reasons": [reason.name for reason in knowledge.clock_reasons(gpu.clock_reasons)],
        **measurements(gpu),
    }
    fans = own_fans(gpu)
    if fans and problem is not BRAKE:  # its own fans cool it, and the fans of the case are not on the BMC's list
        stands_still = gpu.get("FanSpeed") == 0
        evidence["fans"], evidence["fan_percent"] = fans, gpu.get("FanSpeed")
        words += "; its fans stand still" if stands_still else ""
        others = tuple(fix for fix in problem.fixes if fix is not FANS)
        problem = replace(problem, fixes=(*STILL, *others) if stands_still else others)
        problem = replace(problem, title=STANDS_STILL, why=WHY_STILL) if stands_still else problem
    elif problem in HOT and is_passive(gpu):
        words += "; the board has no fan"
        problem = replace(problem, fixes=(AIRFLOW, *problem.fixes))
    if "Laptop" in known(lambda: gpu.name, ""):
        problem = replace(problem, fixes=tuple(OF_LAPTOP if fix is COOL else fix for fix in problem.fixes))
    if "lower_watts" not in evidence:
        problem = replace(problem, fixes=tuple(TO_CHOOSE if fix is LESS_POWER else fix for fix in problem.fixes))
    return problem.found(f"GPU {gpu.index}: {words}", evidence, gpu.index, confidence)


def is_passive(gpu: Gpu) -> bool:
    """A server card without a fan. SXM boards and laptops are excluded: the machine always has fans for them."""
    return known(lambda: gpu.get("NumFans") == 0 and not NEVER_ALONE.search(gpu.name), False)


def own_fans(gpu: Gpu) -> int:
    """How many fans the board has; also 0 if NVML does not report their number or speed."""
    try:
        if gpu.get("FanSpeed") is None:
            return 0
        return int(known(lambda: gpu.get("NumFans"), 1))  # a table of nvidia-smi shows the speed alone
    except Skip:
        return 0


def measurements(gpu: Gpu) -> dict[str, object]:
    """Other values that help to judge, as far as NVML reports them."""
    questions: dict[str, Callable[[], object]] = {
        "sm_mhz": lambda: gpu.clocks_mhz.get("sm"),
        "power_watts": lambda: gpu.power_watts,
        "lower_watts": lambda: round(max(gpu.enforced_power_limit_watts * 0.8, gpu.minimum_power_limit_watts)),
        "seconds_since_driver_load": lambda: {reason: seconds for reason, seconds in gpu.throttled_seconds.items() if seconds},
    }
    values: dict[str, object] = {}
    for name, read in questions.items():
        try:
            values[name] = read()
        except Skip:
            continue
    return values


def summary(facts: Facts) -> str:
    reasons = {reason.name for gpu in facts.nvml.reachable.values() for reason in knowledge.clock_reasons(gpu.clock_reasons)}
    return f"clocks lowered only by {', '.join(sorted(reasons))}" if reasons else "nothing lowers the clocks"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(BRAKE, HARDWARE_HOT, MEMORY_HOT, SOFTWARE_HOT, SLOWED),
    needs=("nvml",),
    tags=("hardware", "performance"),
)
