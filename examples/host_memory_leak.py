"""Host memory leak: a cache without a limit keeps what each step prepared.

Problem: the resident memory of the process grows until the kernel or the container's limit kills it.
"""

import functools
import time

import torch
from loop import device, run


@functools.cache
def prepared(step):
    return torch.full((256, 1024), float(step))


if __name__ == "__main__":
    place = device()
    done = 0

    def step():
        global done
        done += 1
        prepared(done).to(place).sum()
        time.sleep(0.01)

    run(step)
