"""Problems of a GPU whose figures are low or wrong, shared by many checks."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.fixes.common import BMC_ON_POWER, FANS, look, vendor_test
from gpudoctor.model import Action, Fix, Problem, Status

HEADER = "https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h"
LOOK = "nvidia-smi -q -i <address> -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"
AGAIN = "gpudoctor check --gpus <index>"

SHARED = Problem(
    id="gpu-shared-while-measured",
    title="Another process used the GPU while it was measured",
    why="Two programs on one GPU take turns, so each gets only part of its speed. The figures say nothing about the hardware.",
    action=Action.WATCH,
    fixes=(
        look("Find its owner; stop it with the owner's consent, then measure again", "ps -o pid,user,lstart,args -p <pids>"),
        look("Measure when the GPU is free", AGAIN),
    ),
    status=Status.WARN,
)
BRAKE = Problem(
    id="power-brake-under-load",
    title="Under load, the external power brake slows the GPU down",
    why="A power supply, a missing power cable or the BMC asserts the brake signal, which cuts the clocks to half or less.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        BMC_ON_POWER,
        Fix("Check the power supplies, their redundancy and every power plug of the board; replace failed parts", verify=AGAIN),
    ),
    references=(HEADER,),
)
HOT = Problem(
    id="thermal-slowdown-under-load",
    title="Under load, the GPU gets so hot that its clocks are lowered",
    why="The GPU is healthy while idle. After some seconds under load it reaches its temperature limit, and the driver or the "
    "hardware lowers the clocks.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Improve airflow: check dust, fans, neighbouring cards, room and rack temperature", verify=AGAIN),
        FANS,
    ),
    references=(HEADER,),
)
LOW_CLOCKS = Problem(
    id="clocks-held-low-under-load",
    title="Under load, GPU clocks stay low, but not because of power or heat",
    why="Clocks were locked or application clocks were set (nvidia-smi -lgc, -lmc, -ac), or the driver is set to save power.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Remove locked clocks and application clocks",
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
    why="The limit is the default. A healthy GPU of this model is faster within it. This GPU uses more power than usual because "
    "of its cooling, its power supply or the chip itself.",
    action=Action.WATCH,
    fixes=(look("Compare with other GPUs of the same model under the same load; check temperatures", LOOK, verify=AGAIN),),
    references=(HEADER,),
    status=Status.WARN,
)
LOWERED = replace(
    POWER,
    why="The limit was set below its default, to save energy or because of a weak power supply. Under load the driver lowers "
    "the clocks to stay below the limit.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Restore the default limit, if power and cooling allow it",
            "sudo nvidia-smi -i <address> -pl <default_watts>",
            verify=AGAIN,
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix("Ask the owner of the host to restore the default limit", verify=AGAIN, on=("container", "wsl2")),
    ),
)
SLOW = Problem(
    id="gpu-slower-than-expected",
    title="The GPU is slower than expected for an unknown reason",
    why="No other process, heat, power limit or lowered clock was found. The remaining causes are a library without fast kernels "
    "for this GPU, another tenant of the same card, or failing hardware.",
    action=Action.WATCH,
    fixes=(
        look("Measure this GPU again, alone", AGAIN),
        look("Check for memory and link errors", "nvidia-smi -q -i <address> -d ECC,ROW_REMAPPER"),
        vendor_test("Test the hardware with the vendor's own tests", "-r 3 -i <index>"),
    ),
    status=Status.WARN,
)
WRONG = Problem(
    id="gpu-computes-wrong",
    title="A GPU computed a wrong result",
    why="An operation gave numbers that differ from the correct ones by far more than rounding. The cause is faulty memory, an "
    "unstable chip or a faulty library. No result of this GPU can be trusted.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        look(
            "Take the GPU out of service and test its memory", "gpudoctor check --level full --only memory-pattern --gpus <index>"
        ),
        vendor_test("Test the hardware with the vendor's own tests", "-r 3 -i <index>"),
        Fix("If it happens again after a cold start: replace the GPU", verify=AGAIN),
    ),
)

ALL = (WRONG, SHARED, BRAKE, HOT, LOW_CLOCKS, POWER, SLOW)
