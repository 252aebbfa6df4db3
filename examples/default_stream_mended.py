"""Mended: each part has a stream of its own, and the default stream waits for all of them.

Problem: default stream (default_stream.py).
"""

import torch
from loop import device, run

if __name__ == "__main__":
    place = device()
    parts = [torch.randn(20_000, 64, device=place) for _ in range(8)]
    streams = [torch.cuda.Stream() if place.type == "cuda" else None for _ in parts]

    def step():
        for part, stream in zip(parts, streams, strict=True):
            if stream:
                stream.wait_stream(torch.cuda.default_stream())
            with torch.cuda.stream(stream):
                part.cumsum(0)
        for stream in filter(None, streams):
            torch.cuda.default_stream().wait_stream(stream)

    run(step)
