"""Nearly all free memory, filled with patterns and read back, one pattern after the other."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from gpudoctor.worker.measuring.driver import Driver, Module
from gpudoctor.worker.workloads.memory_pattern import PATTERNS, WORD, Chunk, tested

CHUNK = 1 << 30
LEFT_FREE = 1 << 29  # bytes


class Memory:
    """passes: how many patterns were tested, so that each stretch continues with the next one."""

    def __init__(self, driver: Driver, module: Module) -> None:
        self.driver = driver
        self.module = module
        self.passes = 0

    def sustained(self, seconds: float) -> Dict[str, Any]:
        free, total = self.driver.memory()
        chunks: List[Chunk] = []
        try:
            while free - LEFT_FREE >= (len(chunks) + 1) * CHUNK:
                chunks.append(Chunk(self.driver.allocate(CHUNK), CHUNK, len(chunks) * CHUNK // WORD))
            return dict(self._passes(seconds, chunks), bytes=len(chunks) * CHUNK, total_bytes=total)
        finally:
            for chunk in chunks:
                self.driver.free(chunk.pointer)

    def _passes(self, seconds: float, chunks: List[Chunk]) -> Dict[str, Any]:
        wrong: List[Dict[str, Any]] = []
        speeds: List[float] = []
        count, end = 0, time.monotonic() + seconds
        while chunks and (not speeds or time.monotonic() < end):
            pattern = PATTERNS[self.passes % len(PATTERNS)]
            found = tested(self.driver, self.module, pattern, chunks)
            self.passes += 1
            count += found["wrong_words"]
            wrong += [dict(word, pattern=pattern.name) for word in found["wrong"]]
            speeds.append(found["gb_per_s"])
        speed = sum(speeds) / len(speeds) if speeds else 0.0
        return {"patterns": len(speeds), "gb_per_s": speed, "wrong_words": count, "wrong": wrong}
