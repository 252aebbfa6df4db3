"""Mended: TF32 is allowed for matrix products, with the exponent of FP32 and a mantissa of 10 bits.

Problem: TF32 off (tf32_off.py).
"""

import torch
from loop import device, run

if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    place = device()
    size = 4096 if place.type == "cuda" else 256
    a, b = torch.randn(2, size, size, device=place)

    def step():
        a @ b

    run(step)
