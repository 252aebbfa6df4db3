"""TF32 off: FP32 matrix products run on the ordinary units, which is torch's default ("highest").

Problem: a program that needs the range of FP32, but not its 23 bits of mantissa, leaves the tensor cores idle.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    size = 4096 if place.type == "cuda" else 256
    a, b = torch.randn(2, size, size, device=place)

    def step():
        a @ b

    run(step)
