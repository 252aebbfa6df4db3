"""Wrong GPU: no rank selects its GPU, so all of them compute on the first one.

Problem: GPU 0 does the work and holds the memory of every rank, while the others are idle.
"""

import torch
from loop import ranks, run


def main():
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = 4096 if place.type == "cuda" else 256
    a = torch.randn(size, size, device=place)
    run(lambda: a @ a)


if __name__ == "__main__":
    ranks(main)
