"""Recompilation: torch.compile with dynamic=False meets a new sequence length in each step and compiles again.

Problem: seconds of compilation for milliseconds of work; after recompile_limit (8) shapes the function runs eagerly.
"""

import torch
from loop import device, run, work

if __name__ == "__main__":
    place = device()
    backend = "inductor" if place.type == "cuda" else "aot_eager"
    length = 100
    train = work(place, 5)

    @torch.compile(backend=backend, dynamic=False)
    def normalise(values):
        return (values - values.mean(-1, keepdim=True)) / values.std(-1, keepdim=True)

    def step():
        global length
        length += 1
        normalise(torch.randn(64, length, device=place))
        train()

    run(step, warm_up=1)
