"""What limits the kernels themselves while the GPU is busy: arithmetic, memory, too little work in each."""

from __future__ import annotations

from gpudoctor.judging.jobs.works import Work

SMALL = 0.4  # of the multiprocessors work while a kernel runs
MEMORY_BOUND = 0.6  # of the memory bandwidth; a copy reaches about 0.85
TENSOR_BOUND, ARITHMETIC_BOUND = 0.5, 0.5  # of the time of the multiprocessors
UNUSED, FP32_WORK = 0.02, 0.3
LEAST_BUSY = 0.01  # of the time
LITTLE_POWER = 0.35  # of the limit, while some kernel always runs

SHORT, COMPUTE, MEMORY, SMALL_KERNELS, LATENCY, UNKNOWN = "short", "compute", "memory", "small kernels", "latency", "unknown"


def limit(work: Work) -> str:
    """Of the time in which kernels run."""
    filled = work.filled
    if work.busy < LEAST_BUSY:
        return SHORT
    if filled is None:
        return SMALL_KERNELS if draws_little(work) else UNKNOWN
    dram = (work.share("dram") or 0.0) / max(work.busy, 0.01)
    tensor, fp32 = ((work.share(name) or 0.0) / max(work.busy, 0.01) for name in ("tensor", "fp32"))
    other = max((work.share(name) or 0.0) / max(work.busy, 0.01) for name in ("fp64", "fp16"))
    if dram >= MEMORY_BOUND and dram >= tensor:
        return MEMORY
    if tensor >= TENSOR_BOUND or max(fp32, other) >= ARITHMETIC_BOUND:
        return COMPUTE
    return SMALL_KERNELS if filled < SMALL else LATENCY


def draws_little(work: Work) -> bool:
    watts, most = work.mean("watts"), work.gpu.still("power_limit_watts")
    return bool(watts and most and watts / most < LITTLE_POWER and work.busy >= 0.5)


def leaves_tensor_cores_idle(work: Work) -> bool:
    """FP32 arithmetic that the tensor cores could do, if it is of matrices."""
    tensor, fp32 = work.share("tensor"), work.share("fp32")
    return tensor is not None and fp32 is not None and tensor < UNUSED and fp32 / max(work.busy, 0.01) >= FP32_WORK
