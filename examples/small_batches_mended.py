"""Mended: the requests that wait are answered as one batch.

Problem: small batches (small_batches.py). Throughput grows with the batch until the GPU is bound by compute.
"""

import torch
from loop import device, run

WAITING = 32
WIDTH = 4096 if torch.cuda.is_available() else 256

if __name__ == "__main__":
    place = device()
    half = torch.bfloat16 if place.type == "cuda" else torch.float32
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))).to(place, half)
    requests = torch.randn(WAITING, WIDTH, device=place, dtype=half)

    @torch.inference_mode()
    def step():
        model(requests)

    run(step, each=WAITING)
