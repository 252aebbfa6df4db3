"""Attention that falls back: FP32 inputs and a mask as a tensor, which the flash and cuDNN kernels do not take.

Problem: rotary embeddings or a LayerNorm outside autocast leave queries in FP32, and SDPA quietly takes a slower kernel.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    length = 4096 if place.type == "cuda" else 256
    q, k, v = torch.randn(3, 2, 16, length, 64, device=place)
    causal = torch.ones(length, length, dtype=torch.bool, device=place).tril()

    def step():
        torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=causal)

    run(step)
