"""Matrix products at full power, or in bursts; each result is compared bit for bit with the first one."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from gpudoctor.worker.measuring import torch_gpu
from gpudoctor.worker.workloads import gemm

SEED = 20
SIZES = (16384, 8192, 4096, 2048, 1024)
MOST_MS = 150.0  # of one product
SHARE_OF_FREE = 4
BATCH_MS = 250.0  # products that are queued before the host waits for them
BURST_MS = (1, 5, 25, 100)
LONGEST_LIST = 16


class Products:
    """One precision: the same two matrices are multiplied again and again."""

    def __init__(self, torch: Any, name: str, device: Any, most_ms: float = MOST_MS) -> None:
        self.torch = torch
        self.name = name
        self.most_ms = most_ms
        self.size = _size(torch, name, device, most_ms)
        precision = gemm.PRECISIONS[name]
        torch.manual_seed(SEED)
        with gemm.tf32(torch, name == "tf32"):
            self.matrices = gemm.operands(torch, name, self.size, device)
            self.first = gemm.product(torch, *self.matrices)
            self.milliseconds = max(torch_gpu.elapsed(self._again), 1e-3)
            self.check = gemm.checked(torch, precision, self.matrices[0], self.matrices[1], self.first)
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)

    def _again(self) -> Any:
        return gemm.product(self.torch, *self.matrices)

    def run(self, count: int) -> Any:
        """Queues products; returns the last one. The words that differ from the first result are counted on the GPU."""
        found = self.first
        with gemm.tf32(self.torch, self.name == "tf32"):
            for _ in range(count):
                found = self._again()
                self.wrong += words(self.torch, found).ne(words(self.torch, self.first)).sum()
        return found

    def sustained(self, seconds: float) -> Dict[str, Any]:
        batch = max(1, int(BATCH_MS / self.milliseconds))
        count, began = 0, time.monotonic()
        found = self.first
        while time.monotonic() - began < seconds:
            found = self.run(batch)
            torch_gpu.synchronize()
            count += batch
        return self._values(count, time.monotonic() - began, found)

    def bursts(self, seconds: float, milliseconds: float) -> Dict[str, Any]:
        """Works and rests by turns; the turns of all GPUs begin at the same moments, since all processes share the clock."""
        each = max(1, round(milliseconds / self.milliseconds))
        period = 2 * max(milliseconds, each * self.milliseconds) / 1000
        count, bursts, began = 0, 0, time.monotonic()
        found = self.first
        while time.monotonic() - began < seconds:
            time.sleep(period - time.monotonic() % period)
            found = self.run(each)
            torch_gpu.synchronize()
            count += each
            bursts += 1
        values = self._values(count, time.monotonic() - began, found)
        del values["tflops"]  # it rests half of the time
        return dict(values, burst_ms=round(each * self.milliseconds, 3), bursts=bursts)

    def _values(self, count: int, seconds: float, found: Any) -> Dict[str, Any]:
        """The result of a stretch of work; counting starts at zero again."""
        wrong = int(self.wrong.item())
        self.wrong.zero_()
        values = {
            "precision": self.name,
            "size": self.size,
            "products": count,
            "tflops": 2.0 * self.size**3 * count / seconds / 1e12,
            "wrong_words": wrong,
            "checksum": checksum(self.torch, self.first),
            "verified": not self.check["wrong"],
        }
        return dict(values, wrong=differing(self.torch, found, self.first)) if wrong else values


def _size(torch: Any, name: str, device: Any, most_ms: float) -> int:
    """The largest size that fits, and whose product does not take too long."""
    room = torch_gpu.free_bytes() // SHARE_OF_FREE
    fitting = [size for size in SIZES if gemm.BYTES_OF_SIZE * size * size <= room] or [SIZES[-1]]
    probe = min(fitting[0], gemm.PROBE)
    with gemm.tf32(torch, name == "tf32"):
        matrices = gemm.operands(torch, name, probe, device)
        gemm.product(torch, *matrices)
        milliseconds = min(torch_gpu.elapsed(lambda: gemm.product(torch, *matrices)) for _ in range(3))
    return next((size for size in fitting if milliseconds * (size / probe) ** 3 <= most_ms), fitting[-1])


def words(torch: Any, matrix: Any) -> Any:
    """The bits of a result as 8-byte words."""
    return matrix.contiguous().view(torch.int64)


def checksum(torch: Any, matrix: Any) -> str:
    """The sum of all words: any single changed bit changes it, and so does the place of two different words."""
    found = words(torch, matrix).flatten()
    weights = torch.arange(1, found.numel() + 1, dtype=torch.int64, device=found.device)
    return "%016x" % (int((found * weights).sum().item()) % (1 << 64))


def differing(torch: Any, found: Any, first: Any) -> List[Dict[str, Any]]:
    """The first words of 8 bytes that are wrong in the last result; none if only earlier results were wrong."""
    one, other = words(torch, found), words(torch, first)
    places = (one != other).nonzero()[:LONGEST_LIST].tolist()
    return [_wrong(row, word, int(one[row, word].item()), int(other[row, word].item())) for row, word in places]


def _wrong(row: int, word: int, found: int, expected: int) -> Dict[str, Any]:
    return {
        "address": "row %d, word %d" % (row, word),
        "words": 1,
        "expected": "%#018x" % (expected % (1 << 64)),
        "read_again": "%#018x" % (found % (1 << 64)),
        "wrong_bits": bin((found ^ expected) % (1 << 64)).count("1"),
    }
