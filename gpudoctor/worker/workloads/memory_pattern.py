"""Tests that GPU memory keeps its contents: fills nearly all free memory with several patterns and reads them back."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, NamedTuple, Tuple

from gpudoctor.worker.measuring import clock
from gpudoctor.worker.measuring.bench import Bench, Workload
from gpudoctor.worker.measuring.driver import OUT_OF_MEMORY, CudaError, Driver, Module, Pointer, errors_found

CHUNKS = (1 << 30, 1 << 26)  # bytes: as many large ones as fit, then small ones
LEFT_FREE = 32  # this fraction of the total stays free
LEAST_LEFT = 1 << 28
WORD = 8
WORDS = 1 << 64
SPREAD = 0x9E3779B97F4A7C15  # odd, so that all words of a chunk differ: 2^64 divided by the golden ratio
SEEDS = 8
UNCORRECTABLE = (214, 721)  # CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_CONTAINED
LONGEST_LIST = 16


class Chunk(NamedTuple):
    """A part of the memory: `first` is the number of its first word among all tested words."""

    pointer: Pointer
    size: int
    first: int

    @property
    def words(self) -> ctypes.c_uint64:
        return ctypes.c_uint64(self.size // WORD)


class Pattern(NamedTuple):
    """Word i of a chunk is (i * factor) ^ mask; if the pattern counts, the mask includes the position of the chunk."""

    name: str
    factor: int
    mask: int
    counts: bool

    def parameters(self, chunk: Chunk) -> Tuple[ctypes.c_uint64, ctypes.c_uint64]:
        place = chunk.first << 20 if self.counts else 0  # above the numbers of a chunk's own words, which are below 2^27
        return ctypes.c_uint64(self.factor), ctypes.c_uint64((self.mask ^ place) % WORDS)

    def word(self, chunk: Chunk, index: int) -> int:
        factor, mask = self.parameters(chunk)
        return (index * factor.value) % WORDS ^ mask.value


PATTERNS = (
    Pattern("address", 1, 0, True),
    Pattern("inverse address", 1, WORDS - 1, True),
    Pattern("0x55", 0, 0x5555555555555555, False),
    Pattern("0xAA", 0, 0xAAAAAAAAAAAAAAAA, False),
    *(Pattern("hash %d" % seed, SPREAD, seed * SPREAD % WORDS, True) for seed in range(1, SEEDS + 1)),
)


def run(bench: Bench) -> None:
    """tested: {"bytes", "free_bytes", "total_bytes", "stopped"}; each pattern: {"wrong_words", "gb_per_s", "wrong"}; complete:
    {"patterns"} at the very end; uncorrectable: {"pattern", "error"} if ECC found an uncorrectable error."""
    bench.step("context")
    driver = Driver(bench.gpu)
    module = driver.module()
    driver.synchronize()
    bench.step("allocating")
    chunks = taken(bench, driver)
    for pattern in PATTERNS:
        try:
            with bench.section(pattern.name) as values:
                values.update(tested(driver, module, pattern, chunks))
        except CudaError as failure:
            if failure.code not in UNCORRECTABLE:
                raise
            bench.keep("uncorrectable", pattern=pattern.name, error=str(failure))
            return
    bench.keep("complete", patterns=len(PATTERNS))


def taken(bench: Bench, driver: Driver) -> List[Chunk]:
    """Allocates as much memory as possible; it is freed when this process ends."""
    free, total = driver.memory()
    room = free - max(total // LEFT_FREE, LEAST_LEFT)
    chunks: List[Chunk] = []
    stopped = ""
    for size in CHUNKS:
        while room >= size:
            try:
                pointer = driver.allocate(size)
            except CudaError as failure:
                if failure.code != OUT_OF_MEMORY:
                    raise
                stopped = str(failure)
                break
            chunks.append(Chunk(pointer, size, sum(chunk.size for chunk in chunks) // WORD))
            room -= size
    got = sum(chunk.size for chunk in chunks)
    bench.keep("tested", bytes=got, free_bytes=free, total_bytes=total, stopped=stopped)
    return chunks


def tested(driver: Driver, module: Module, pattern: Pattern, chunks: List[Chunk]) -> Dict[str, Any]:
    """Writes all chunks before reading the first, so that a write to the wrong address is detected too."""
    began = clock.now()
    for chunk in chunks:
        module("fill_pattern", chunk.pointer, chunk.words, *pattern.parameters(chunk))
    count = 0
    wrong: List[Dict[str, Any]] = []
    for chunk in chunks:
        found, first = errors_found(driver, module, "expect_pattern", chunk.pointer, chunk.words, *pattern.parameters(chunk))
        count += found
        if found and len(wrong) < LONGEST_LIST:
            wrong.append(described(driver, pattern, chunk, first, found))
    seconds = clock.now() - began
    size = 2 * sum(chunk.size for chunk in chunks)
    return {"wrong_words": count, "gb_per_s": size / seconds / 1e9, "wrong": wrong}


def described(driver: Driver, pattern: Pattern, chunk: Chunk, index: int, count: int) -> Dict[str, Any]:
    """The first wrong word of a chunk, and its value when read again, which may be correct then."""
    expected = pattern.word(chunk, index)
    actual = int.from_bytes(driver.bytes_from(chunk.pointer, WORD, index * WORD), "little")
    return {
        "address": "%#x" % (chunk.pointer.value + index * WORD),
        "words": count,
        "expected": "%#018x" % expected,
        "read_again": "%#018x" % actual,
        "wrong_bits": bin(expected ^ actual).count("1"),
    }


WORKLOAD = Workload(run, seconds=180, typical_seconds=4)
