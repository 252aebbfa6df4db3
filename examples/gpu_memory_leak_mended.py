"""Mended: only the newest predictions are kept.

Problem: GPU memory leak (gpu_memory_leak.py).
"""

import time
from collections import deque

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    model = torch.nn.Linear(1024, 1024).to(place)
    seen = deque(maxlen=3)

    @torch.inference_mode()
    def step():
        seen.append(model(torch.randn(64, 1024, device=place)))
        time.sleep(0.001)

    run(step)
