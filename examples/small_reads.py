"""Small reads: samples are read from storage in pieces of 4 KiB, each of which waits for the disk.

Problem: the GPU waits for the disk, although the disk could deliver many times as much in large reads.
"""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from loop import device, run, work

MIB = 64 if torch.cuda.is_available() else 4
PIECE = 4 * 2**10


def read(path, piece):
    """The file from the disk, not from the page cache."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return bytearray(b"".join(iter(lambda: file.read(piece), b"")))


if __name__ == "__main__":
    place = device()
    train = work(place, 250)
    with tempfile.NamedTemporaryFile(dir=os.environ.get("EXAMPLES_DATA", ".")) as file, ThreadPoolExecutor(1) as reader:
        file.write(os.urandom(MIB * 2**20))
        file.flush()
        os.fsync(file.fileno())

        coming = reader.submit(read, Path(file.name), PIECE)

        def step():
            global coming
            data = torch.frombuffer(coming.result(), dtype=torch.uint8)
            coming = reader.submit(read, Path(file.name), PIECE)
            (data.pin_memory() if place.type == "cuda" else data).to(place, non_blocking=True)
            train()

        run(step, each=MIB, warm_up=1)
