"""Small batches: requests are answered one by one, so all weights are read for each of them.

Problem: at batch size 1 a matrix product is bound by memory, and the GPU could answer dozens in the same time.
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
        for request in requests:
            model(request)

    run(step, each=WAITING)
