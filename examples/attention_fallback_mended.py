"""Mended: bf16 inputs and is_causal instead of a mask, so that SDPA takes a flash kernel.

Problem: attention that falls back (attention_fallback.py). sdpa_kernel(SDPBackend.FLASH_ATTENTION) says why one is refused.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    length = 4096 if place.type == "cuda" else 256
    q, k, v = torch.randn(3, 2, 16, length, 64, device=place).bfloat16()

    def step():
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    run(step)
