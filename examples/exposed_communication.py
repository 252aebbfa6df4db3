"""Communication that overlaps nothing: after the backward pass, each gradient is reduced by a blocking call.

Problem: the GPU computes nothing while it communicates, and many small messages are slower than a few large ones.
"""

import torch
import torch.distributed as dist
from loop import backend, device, ranks, run


def main():
    dist.init_process_group(backend())
    place = device()
    width = 1024 if place.type == "cuda" else 64
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(32))).to(place)
    batch = torch.randn(4 * width, width, device=place)

    def step():
        model.zero_grad()
        model(batch).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            if place.type == "cuda":
                torch.cuda.synchronize()

    run(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks(main)
