"""Mended: each rank takes the GPU of its LOCAL_RANK before it does anything else.

Problem: wrong GPU (wrong_gpu.py).
"""

import torch
from loop import device, ranks, run


def main():
    place = device()
    if place.type == "cuda":
        torch.cuda.set_device(place)
    size = 4096 if place.type == "cuda" else 256
    a = torch.randn(size, size, device=place)
    run(lambda: a @ a)


if __name__ == "__main__":
    ranks(main)
