"""Mended: the default stream waits for the copy before it reads.

Problem: data race between two streams (stream_race.py).
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    cuda = place.type == "cuda"
    batches = [torch.full((2**24,), float(value)) for value in range(1, 5)]
    batches = [batch.pin_memory() for batch in batches] if cuda else batches
    buffer = torch.zeros(2**24, device=place)
    wrong, turn = torch.zeros((), device=place), 0
    side = torch.cuda.Stream() if cuda else None

    def step():
        global turn
        turn += 1
        with torch.cuda.stream(side):
            buffer.copy_(batches[turn % 4], non_blocking=True)
        if cuda:
            torch.cuda.default_stream().wait_stream(side)
        wrong.add_((buffer[-1] != turn % 4 + 1).float())
        if cuda:
            torch.cuda.synchronize()

    run(step, wrong_share=lambda: wrong.item() / turn)
