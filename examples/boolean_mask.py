"""Boolean masks synchronise: the size of x[mask] is known to the GPU alone, so the host waits for it.

Problem: indexing by a mask (as nonzero, unique and masked_select) stops the host in every step.
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    values = torch.randn(64, 2**23 if place.type == "cuda" else 4096, device=place)

    def step():
        for row in values:
            kept = row[row > 0]
            kept.square().sum()

    run(step)
