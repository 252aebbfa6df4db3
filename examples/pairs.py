"""The pairs: which program has which problem, and the figure that shows it."""

from __future__ import annotations

from dataclasses import dataclass

ENDS = "ends"  # the figure of programs of which one never ends by itself


@dataclass(frozen=True)
class Pair:
    """figure: a key of what loop.run prints; the mended program has more of it, or less. gpus: without which nothing is seen."""

    name: str
    problem: str
    figure: str = "per_second"
    unit: str = "steps/s"
    more: bool = True
    gpus: int = 1

    @property
    def mended(self) -> str:
        return f"{self.name}_mended"


PAIRS = (
    Pair("input_bound", "one process loads, the GPU waits", unit="images/s"),
    Pair("restarted_workers", "loader processes are started again in each epoch", unit="epochs/s"),
    Pair("one_core", "all loader workers share one core", unit="samples/s"),
    Pair("small_reads", "samples are read in pieces of 4 KiB", unit="MiB/s"),
    Pair("python_bound", "Python prepares element by element", unit="elements/s"),
    Pair("sync_each_step", "`.item()` in every step", unit="iterations/s"),
    Pair("boolean_mask", "`x[mask]` waits for the size of its result"),
    Pair("pageable_copies", "batches are copied from pageable memory"),
    Pair("tiny_copies", "512 copies of 256 bytes"),
    Pair("host_copies", "weights and state go to the host and back"),
    Pair("forgotten_device", "model and data were never moved to the GPU"),
    Pair("fp32_training", "FP32 where bf16 would do"),
    Pair("tf32_off", "TF32 is not allowed"),
    Pair("attention_fallback", "FP32 inputs and a mask keep SDPA from flash kernels"),
    Pair("small_kernels", "a hundred launches of a few microseconds"),
    Pair("small_batches", "requests are answered one by one", unit="requests/s"),
    Pair("unfused_optimizer", "Adam goes through 300 tensors one by one"),
    Pair("channels_first", "convolutions in NCHW"),
    Pair("cudnn_benchmark", "cuDNN searches again for each new shape"),
    Pair("recompilation", "torch.compile compiles again for each new shape"),
    Pair("default_stream", "independent kernels share the default stream"),
    Pair("emptied_cache", "`empty_cache()` in every step"),
    Pair("kept_graphs", "losses are kept with their autograd graph", "gpu_mib_per_step", "GPU MiB a step", more=False),
    Pair("gpu_memory_leak", "predictions are kept for ever", "gpu_mib_per_step", "GPU MiB a step", more=False),
    Pair("host_memory_leak", "a cache without a limit", "host_mib_per_step", "host MiB a step", more=False),
    Pair("recorded_inference", "inference with autograd on", "peak_gpu_mib", "GPU MiB at most", more=False),
    Pair("idle_allocation", "memory is held while nothing runs", "reserved_gpu_mib", "GPU MiB while idle", more=False),
    Pair("grad_scaler", "each step overflows and is skipped", "applied_per_second", "steps applied/s"),
    Pair("stream_race", "a kernel reads what a copy still writes", "wrong_share", "share of wrong results", more=False),
    Pair("straggler", "one rank has four times the work", unit="samples/s", gpus=2),
    Pair("exposed_communication", "gradients are reduced one by one after the backward pass", gpus=2),
    Pair("wrong_gpu", "all ranks use the first GPU", gpus=2),
    Pair("rank_leaves_early", "a rank leaves its loop, the other waits", ENDS, "of 1 run ends"),
)
