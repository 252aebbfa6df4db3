"""Small reads: samples are read from storage in pieces of 4 KiB, each of which waits for the disk.

Problem: the GPU waits for the disk, although the disk could deliver many times as much in large reads.
"""

import os
import tempfile
from pathlib import Path

import torch
from loop import device, run

MIB = 64
PIECE = 4 * 2**10


def read(path, piece):
    """The file from the disk, not from the page cache."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return bytearray(b"".join(iter(lambda: file.read(piece), b"")))


if __name__ == "__main__":
    place = device()
    with tempfile.NamedTemporaryFile(dir=os.environ.get("EXAMPLES_DATA", ".")) as file:
        file.write(os.urandom(MIB * 2**20))
        file.flush()
        os.fsync(file.fileno())

        def step():
            torch.frombuffer(read(Path(file.name), PIECE), dtype=torch.uint8).to(place).sum()

        run(step, each=MIB, warm_up=1)
