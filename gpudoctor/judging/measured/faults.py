"""What can be wrong with a GPU whose numbers are low or wrong: problems that many checks find."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.fixes.common import BMC_ON_POWER, FANS, look, vendor_test
from gpudoctor.model import Action, Fix, Problem, Status

HEADER = "https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h"
LOOK = "nvidia-smi -q -i <address> -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"
AGAIN = "gpudoctor check --gpus <index>"

SHARED = Problem(
    id="gpu-shared-while-measured",
    title="Another process worked on the GPU while it was measured",
    why="Two programs on one GPU take turns, so that each gets a part of its speed. The figures say nothing about the hardware.",
    action=Action.WATCH,
    fixes=(
        look("See whose it is; with its owner's consent stop it, then measure again", "ps -o pid,user,lstart,args -p <pids>"),
        look("Measure when the GPU is free", AGAIN),
    ),
    status=Status.WARN,
)
BRAKE = Problem(
    id="power-brake-under-load",
    title="Under load, the machine's power supply slows the GPU down (power brake)",
    why="A power supply, a missing power cable or the BMC pulls the brake signal, which cuts the clocks to half or less.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        BMC_ON_POWER,
        Fix("Check the power supplies, their redundancy and every power plug of the board; replace what failed", verify=AGAIN),
    ),
    references=(HEADER,),
)
HOT = Problem(
    id="thermal-slowdown-under-load",
    title="Under load, the GPU gets so hot that its clocks are lowered",
    why="It is healthy while idle. After some seconds of work it reaches its temperature limit, and the driver or the hardware "
    "lowers the clocks.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Free the air's way: dust, fans, neighbouring cards, room and rack temperature", verify=AGAIN),
        FANS,
    ),
    references=(HEADER,),
)
LOW_CLOCKS = Problem(
    id="clocks-held-low-under-load",
    title="Under load, the GPU's clocks stay low, and neither power nor heat is the reason",
    why="Clocks were locked or application clocks set (nvidia-smi -lgc, -lmc, -ac), or the driver was told to save power.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Take locked and application clocks away",
            "sudo nvidia-smi -i <address> -rgc; sudo nvidia-smi -i <address> -rmc; sudo nvidia-smi -i <address> -rac",
            verify=AGAIN,
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix("Ask the owner of the host whether clocks were locked", verify=AGAIN, on=("container",)),
    ),
    references=(HEADER,),
    status=Status.WARN,
)
POWER = Problem(
    id="power-cap-under-load",
    title="The GPU runs at its power limit, which keeps its clocks low",
    why="The limit is the default one. A healthy GPU of this kind is faster within it: its cooling, its supply or the chip "
    "itself costs more power than usual.",
    action=Action.WATCH,
    fixes=(look("Compare with other GPUs of the same kind under the same load; look at temperatures", LOOK, verify=AGAIN),),
    references=(HEADER,),
    status=Status.WARN,
)
LOWERED = replace(
    POWER,
    why="Somebody lowered the limit below its default, to save energy or for a weak power supply. Under load the driver lowers "
    "the clocks to stay below it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Set the default limit again, if power and cooling allow it",
            "sudo nvidia-smi -i <address> -pl <default_watts>",
            verify=AGAIN,
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix("Ask the owner of the host to set the limit back to its default", verify=AGAIN, on=("container", "wsl2")),
    ),
)
SLOW = Problem(
    id="gpu-slower-than-expected",
    title="The GPU is slower than it should be, and what was seen meanwhile does not say why",
    why="No other process, no heat, no power limit and no lowered clock was seen. What remains: a library without fast kernels "
    "for this GPU, another tenant of the same card, or failing hardware.",
    action=Action.WATCH,
    fixes=(
        look("Measure this GPU again, alone", AGAIN),
        look("Look for errors of its memory and links", "nvidia-smi -q -i <address> -d ECC,ROW_REMAPPER"),
        vendor_test("Let the vendor's own tests judge the hardware", "-r 3 -i <index>"),
    ),
    status=Status.WARN,
)
WRONG = Problem(
    id="gpu-computes-wrong",
    title="A GPU computed a wrong result",
    why="The same operation gave numbers that differ from the right ones by far more than rounding. Broken memory, an unstable "
    "chip or a faulty library: nothing that this GPU computes can be trusted.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look(
            "Take the GPU out of work, and test its memory", "gpudoctor check --level full --only memory-pattern --gpus <index>"
        ),
        vendor_test("Let the vendor's own tests judge the hardware", "-r 3 -i <index>"),
        Fix("If it happens again after a cold start: have the GPU replaced", verify=AGAIN),
    ),
)

ALL = (WRONG, SHARED, BRAKE, HOT, LOW_CLOCKS, POWER, SLOW)
