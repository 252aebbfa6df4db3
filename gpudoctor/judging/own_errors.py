"""Commands that fail on any machine, through their own errors."""

from __future__ import annotations

import re

from gpudoctor.facts import Facts, command

_OF_GPUS = re.compile(
    r"""
    cuda | cu(?:dnn|blas|py|fft) | nvidia | nvml | nccl | gpu | device | \bhip\b | rocm | \.so\b | driver | vram
    | \bxla\b | \bpjrt\b | torch | tensorflow | keras | jax | triton | vllm | sglang | onnx | numba | rapids | cudf
    | transformers | accelerate | bitsandbytes | flash.?attn | apex | deepspeed | \bray\b | lightning | diffusers
    | llama | xgboost | warp | docker | podman
    """,
    re.IGNORECASE | re.VERBOSE,
)


def needs_no_gpu(facts: Facts) -> bool:
    """Whether neither a command that failed nor its output names anything of GPUs. Skip if no command was run."""
    if facts.command.kind != "failed":
        return False
    printed = [text for text in facts.texts.all if text.name == command.NAME]
    said = "\n".join((facts.command.line, *(line for text in printed for _, line in text.lines)))
    return bool(printed) and not any(text.left_out for text in printed) and _OF_GPUS.search(said) is None
