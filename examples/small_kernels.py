"""Small kernels: a hundred operators on a few thousand elements each, one launch after the other.

Problem: launching takes longer than computing. nvidia-smi shows high utilisation, while nearly all SMs are idle.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    state = torch.randn(2**20, device=place)

    def chain():
        for _ in range(50):
            state.mul_(0.999).add_(0.001)

    run(chain)
