"""While kernels run, they use the GPU well.

What it means
A GPU that is always busy can still be slowed down by heat or a power limit, do its arithmetic where it is slow, or wait for its
own memory. What limits it decides whether anything is left to gain.

How it is judged
Reads which part of the time the driver lowered the clocks, and for what reason, and compares clock and power limit with the
GPU's own. GPM (Hopper and newer) and DCGM count how busy the tensor cores, the other arithmetic units and the memory were. FP32
arithmetic in 30 % of the time without tensor cores is a problem; 60 % of the memory bandwidth is memory-bound, which is only
noted; tensor cores or other arithmetic in half of the time are compute-bound: nothing to do.

Known exceptions
Without these counters, utilisation and power show only that some kernel ran and how much power it drew, and what limits it is
not judged. A power cap while the clocks stay above 80 % is normal under full load. FP32 arithmetic other than matrix
products cannot use tensor cores.

References
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmStructs.html
https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html#profiling-metrics
https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import BMC_ON_POWER, FANS, airflow, look
from gpudoctor.judging.jobs import kernels, works
from gpudoctor.judging.jobs.works import Work, found, percent
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

HOT, BRAKE, HARDWARE, POWER_CAP = 0x20 | 0x40, 0x80, 0x8, 0x4
OFTEN = 0.05  # of the time
SLOW_CLOCK = 0.8  # of the highest
LOOK = "nvidia-smi -q -i <address> -d PERFORMANCE,TEMPERATURE,POWER,CLOCK"
TF32 = "https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices"

THROTTLED = Problem(
    id="job-throttled",
    title="The GPU lowered its clocks while the job ran",
    why="Heat, a power brake or the hardware itself kept the clocks down for part of the time, so the same work took longer.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(look("Show reasons, temperatures and limits", LOOK), airflow(LOOK), FANS, BMC_ON_POWER),
    references=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",),
)
POWER = Problem(
    id="job-power-limit-lowered",
    title="The GPU's power limit is lowered and slows the job down",
    why="The limit is below the GPU's default, and while the job ran the driver kept the clocks down because of it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Restore the default limit, if the owner of the machine agrees",
            "sudo nvidia-smi -i <address> -pl <default_watts>",
            needs=("root",),
            verify=LOOK,
            on=("host",),
            kind="manual",
        ),
        look("Show the limits", LOOK),
    ),
    references=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",),
)
NO_TENSOR_CORES = Problem(
    id="job-leaves-tensor-cores-idle",
    title="The job computes in FP32 and leaves the tensor cores idle",
    why="Matrix products in TF32 or bfloat16 run on the tensor cores, several times as fast as in FP32 on the other units.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix('Allow TF32 for products of FP32 matrices: torch.set_float32_matmul_precision("high")'),
        Fix('Compute in bfloat16: torch.autocast(device_type="cuda", dtype=torch.bfloat16)'),
        Fix("Keep the sizes of matrices multiples of 8 (16 bits) or 16 (8 bits)"),
    ),
    references=(TF32, "https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html"),
)
MEMORY_BOUND = Problem(
    id="job-memory-bound",
    title="The kernels are limited by the bandwidth of GPU memory",
    why="They move so many bytes for each operation that arithmetic waits for memory. A GPU with more FLOPS would not help; "
    "moving fewer bytes does.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        Fix(
            "Combine element-wise operations, so that intermediate results do not go through memory: torch.compile, fused kernels"
        ),
        Fix("Use smaller types: bfloat16, quantized weights (int8, fp8, int4)"),
        Fix("In inference: process more requests at the same time (larger batches)"),
    ),
    references=("https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from works.on_each(facts, judge_one)


def judge_one(work: Work) -> Iterator[Finding]:
    yield from slowed(work)
    evidence = measured(work)
    if kernels.leaves_tensor_cores_idle(work):
        fp32, tensor = work.share("fp32"), work.share("tensor")
        words = f"GPU {work.gpu.index} computed in FP32 in {percent(fp32)} of the time, and on tensor cores in {percent(tensor)}"
        yield found(NO_TENSOR_CORES, work, words, 0.5 * (fp32 or 0.0), True, **evidence)
    elif kernels.limit(work) == kernels.MEMORY and not work.waits:
        words = f"GPU {work.gpu.index} used {percent(work.share('dram'))} of its memory bandwidth, and its tensor cores in "
        words += f"{percent(work.share('tensor'))} of the time"
        yield found(MEMORY_BOUND, work, words, 0.0, True, **evidence)


def slowed(work: Work) -> Iterator[Finding]:
    share = {
        bits: max((part for bit, part in work.gpu.reasons.items() if bit & bits), default=0.0) for bits in (HOT, BRAKE, HARDWARE)
    }
    clock, most = work.mean("sm_mhz"), work.gpu.still("most_sm_mhz")
    lost = max(0.0, 1 - clock / most) if clock and most else 0.0
    evidence = {"sm_mhz": clock, "most_sm_mhz": most, "celsius": work.gpu.highest("celsius"), "watts": work.mean("watts")}
    for bits, words in ((BRAKE, "the external power brake"), (HOT, "heat"), (HARDWARE, "its hardware")):
        if share[bits] >= OFTEN:
            said = f"GPU {work.gpu.index} lowered its clocks because of {words} in {share[bits]:.0%} of the time"
            yield found(THROTTLED, work, f"{said} (mean {clock or 0:.0f} MHz)", lost * work.busy, bits != HARDWARE, **evidence)
            return
    limit, usual = work.gpu.still("power_limit_watts"), work.gpu.still("default_watts")
    capped = work.gpu.reasons.get(POWER_CAP, 0.0)
    if limit and usual and limit < 0.95 * usual and capped >= 0.3 and lost > 1 - SLOW_CLOCK:
        words = (
            f"GPU {work.gpu.index} is limited to {limit:.0f} W of {usual:.0f} W, and its clocks stayed at {clock or 0:.0f} MHz"
        )
        yield found(POWER, work, words, lost * work.busy, True, default_watts=round(usual), **evidence)


def measured(work: Work) -> dict[str, object]:
    names = ("sm", "occupancy", "tensor", "dram", "fp64", "fp32", "fp16", "watts")
    return {name if name == "watts" else f"{name}_percent": work.mean(name) for name in names}


def summary(facts: Facts) -> str:
    return "; ".join(dict.fromkeys(map(_told, works.busy_works(facts))))


def _told(work: Work) -> str:
    limit = kernels.limit(work)
    tensor, dram = percent(work.share("tensor")), percent(work.share("dram"))
    if limit == kernels.COMPUTE and not work.waits:
        return f"GPU {work.gpu.index} is compute-bound (tensor cores {tensor}, memory {dram}): nothing to do"
    if limit == kernels.SHORT:
        return f"GPU {work.gpu.index} ran kernels in {work.busy:.1%} of the time: too little to say what limits them"
    if limit == kernels.UNKNOWN:
        why = work.gpu.why_no_metrics
        return f"GPU {work.gpu.index} ran kernels in {work.busy:.0%} of the time; what limits them is not counted here ({why})"
    if limit == kernels.LATENCY:
        occupancy = percent(work.share("occupancy"))
        return f"GPU {work.gpu.index}: neither arithmetic ({tensor}) nor memory ({dram}) is the limit; occupancy {occupancy}"
    return f"GPU {work.gpu.index}: tensor cores {tensor}, memory bandwidth {dram}, clocks not lowered"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(THROTTLED, POWER, NO_TENSOR_CORES, MEMORY_BOUND),
    tags=("performance",),
)
