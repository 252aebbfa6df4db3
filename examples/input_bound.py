"""Input-bound: one process decompresses every sample while the GPU waits.

Problem: the DataLoader has no workers, so loading and training take turns.
"""

import zlib

import torch
from loop import device, run
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
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7, stride=4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10))
    model.to(place)(torch.zeros(1, 3, 224, 224, device=place))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batches = iter(DataLoader(Images(), batch_size=64))

    def step():
        images = next(batches).to(place)
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()

    run(step, each=64)
