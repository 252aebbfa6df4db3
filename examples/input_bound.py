"""Input-bound: one process decompresses every sample while the GPU waits.

Problem: the DataLoader has no workers, so loading and training take turns.
"""

import zlib

import torch
from loop import device, run, work
from torch.utils.data import DataLoader, Dataset

SAMPLE = zlib.compress(torch.arange(3 * 224 * 224, dtype=torch.int32).numpy().tobytes(), 6)


class Images(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        pixels = bytearray(zlib.decompress(SAMPLE))
        return torch.frombuffer(pixels, dtype=torch.int32).view(3, 224, 224).float() / 255


if __name__ == "__main__":
    place = device()
    train = work(place, 40)
    batches = iter(DataLoader(Images(), batch_size=64, pin_memory=place.type == "cuda"))

    def step():
        next(batches).to(place, non_blocking=True)
        train()

    run(step, each=64)
