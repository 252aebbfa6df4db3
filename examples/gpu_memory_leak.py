"""GPU memory leak: every prediction is kept in a list that nobody empties.

Problem: memory grows at a steady rate, and the program ends with "CUDA out of memory" after minutes or days.
"""

import time

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    model = torch.nn.Linear(1024, 1024).to(place)
    seen = []

    @torch.inference_mode()
    def step():
        seen.append(model(torch.randn(64, 1024, device=place)))
        time.sleep(0.001)

    run(step)
