"""Restarted workers: the DataLoader starts its processes again for each short epoch.

Problem: persistent_workers is off, so every epoch begins with a wait for new processes, and the GPU waits too.
"""

import torch
from loop import device, run, work
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    place = device()
    data = TensorDataset(torch.randn(512, 1024))
    train = work(place, 5)
    loader = DataLoader(data, batch_size=64, num_workers=4, pin_memory=place.type == "cuda")

    def epoch():
        for (batch,) in loader:
            batch.to(place, non_blocking=True)
            train()

    run(epoch, warm_up=1)
