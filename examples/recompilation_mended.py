"""Mended: the length is marked as dynamic, so one compilation serves all.

Problem: recompilation (recompilation.py). Padding to a few lengths is the other way, where a kernel needs fixed shapes.
"""

import torch
from loop import device, run, work

if __name__ == "__main__":
    place = device()
    backend = "inductor" if place.type == "cuda" else "aot_eager"
    length = 100
    train = work(place, 5)

    @torch.compile(backend=backend)
    def normalise(values):
        return (values - values.mean(-1, keepdim=True)) / values.std(-1, keepdim=True)

    def step():
        global length
        length += 1
        values = torch.randn(64, length, device=place)
        torch._dynamo.mark_dynamic(values, 1)
        normalise(values)
        train()

    run(step, warm_up=1)
