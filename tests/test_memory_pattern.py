"""The test of GPU memory: on memory that forgets, mixes up addresses or is not given, and how that is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import pytest

from gpudoctor import catalog
from gpudoctor.facts import Facts
from gpudoctor.model import Action, Finding, Reply, Skip
from gpudoctor.worker.measuring import bench
from gpudoctor.worker.measuring.driver import CudaError, Driver
from gpudoctor.worker.workloads import memory_pattern

CHECK = catalog.checks()["memory-pattern"]
WORD, MASK = 8, (1 << 64) - 1
CHUNK_WORDS = 16
CHUNK = CHUNK_WORDS * WORD


class Memory:
    """A GPU with 64 words left to others. keeps: (address, word) -> what it keeps instead; cell: address -> where that is;
    fail: kernel -> code."""

    def __init__(
        self, chunks: int = 4, refuse_after: int = 99, keeps: Any = None, cell: Any = None, fail: dict[str, int] | None = None
    ) -> None:
        self.words: dict[int, int] = {}
        self.size = chunks * CHUNK + 64 * WORD
        self.taken = 0
        self.refuse_after = refuse_after
        self.keeps = keeps or (lambda address, word: word)
        self.cell = cell or (lambda address: address)
        self.fail = fail or {}

    def __call__(self, ordinal: int) -> Memory:
        return self

    def memory(self) -> tuple[int, int]:
        return self.size - self.taken, self.size

    def module(self) -> Callable[..., None]:
        return self.launch

    def synchronize(self) -> None:
        pass

    def allocate(self, size: int) -> Any:
        if self.taken // CHUNK >= self.refuse_after:
            raise CudaError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY")
        self.taken += size
        return SimpleNamespace(value=0x700000000000 + self.taken - size)

    def bytes_from(self, pointer: Any, size: int, offset: int) -> bytes:
        return self.at(pointer.value + offset).to_bytes(8, "little")

    def at(self, address: int) -> int:
        return self.words[self.cell(address)]

    def launch(self, kernel: str, pointer: Any, words: Any, factor: Any, mask: Any) -> None:
        self.check(kernel)
        for index in range(words.value):
            address, word = pointer.value + WORD * index, (index * factor.value & MASK) ^ mask.value
            self.words[self.cell(address)] = self.keeps(address, word)

    def check(self, kernel: str) -> None:
        if kernel in self.fail:
            raise CudaError("cuLaunchKernel", self.fail[kernel], "CUDA_ERROR_ECC_UNCORRECTABLE")

    def errors_found(self, driver: Any, module: Any, kernel: str, pointer: Any, words: Any, factor: Any, mask: Any) -> Any:
        self.check(kernel)
        expected = [(index * factor.value & MASK) ^ mask.value for index in range(words.value)]
        wrong = [index for index, word in enumerate(expected) if self.at(pointer.value + WORD * index) != word]
        return len(wrong), wrong[0] if wrong else MASK


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(**settings: Any) -> dict[str, Any]:
        memory = Memory(**settings)
        monkeypatch.setattr(memory_pattern, "Driver", memory)
        monkeypatch.setattr(memory_pattern, "errors_found", memory.errors_found)
        monkeypatch.setattr(memory_pattern, "CHUNKS", (CHUNK, CHUNK // 4))
        monkeypatch.setattr(memory_pattern, "LEAST_LEFT", 64 * WORD)
        memory_pattern.run(bench.Bench(str(tmp_path / "results"), [0]))
        return dict(bench.read(str(tmp_path / "results")).values)

    return run


def wrong_words(values: dict[str, Any]) -> dict[str, int]:
    return {name: value["wrong_words"] for name, value in values.items() if value.get("wrong_words")}


def test_good_memory_holds_every_pattern(tested: Any) -> None:
    found = tested()
    assert found["complete"] == {"patterns": 12}
    assert wrong_words(found) == {}
    assert found["tested"]["bytes"] == 4 * CHUNK
    assert found["address"]["gb_per_s"] > 0


def test_a_bit_that_is_always_zero_is_seen_where_a_pattern_sets_it(tested: Any) -> None:
    bad = 0x700000000000 + CHUNK + 5 * WORD
    found = tested(keeps=lambda address, word: word & ~(1 << 40) if address == bad else word)
    assert {"inverse address", "0x55"} <= set(wrong_words(found))
    assert "0xAA" not in wrong_words(found)
    (word,) = found["0x55"]["wrong"]
    assert (word["address"], word["words"], word["wrong_bits"]) == (f"{bad:#x}", 1, 1)
    assert word["expected"] == "0x5555555555555555"


def test_an_address_line_that_is_stuck_mixes_up_chunks(tested: Any) -> None:
    """Two chunks share their cells: only patterns that count see that, and only since all is written before it is read."""
    found = tested(cell=lambda address: address & ~CHUNK)
    assert set(wrong_words(found)) == {pattern.name for pattern in memory_pattern.PATTERNS if pattern.counts}


def test_a_word_of_every_pattern_is_its_own() -> None:
    chunks = [memory_pattern.Chunk(Any, 1 << 30, number << 27) for number in range(3)]  # type: ignore[arg-type]
    for pattern in memory_pattern.PATTERNS:
        words = {pattern.word(chunk, index) for chunk in chunks for index in (0, 1, 77, (1 << 27) - 1)}
        assert len(words) == (12 if pattern.counts else 1)


def test_an_allocation_that_fails_ends_the_filling(tested: Any) -> None:
    found = tested(refuse_after=1)
    assert found["tested"]["bytes"] == CHUNK
    assert "CUDA_ERROR_OUT_OF_MEMORY" in found["tested"]["stopped"]
    assert found["complete"]


def test_an_error_of_ecc_is_a_result(tested: Any) -> None:
    found = tested(fail={"expect_pattern": 214})
    assert found["uncorrectable"]["pattern"] == "address"
    assert "complete" not in found
    with pytest.raises(CudaError):
        tested(fail={"expect_pattern": 700})


def test_the_kernels_are_those_of_the_driver_layer() -> None:
    assert ".visible .entry expect_pattern(" in __import__("gpudoctor.worker.measuring.driver", fromlist=["kernels"]).kernels()
    assert callable(Driver.allocate)


GIB = 1 << 30


def values(gib: float = 77.0, free: float = 79.0, stopped: str = "", **more: Any) -> dict[str, Any]:
    good = {"wrong_words": 0, "gb_per_s": 2700.0, "wrong": []}
    patterns = {pattern.name: good for pattern in memory_pattern.PATTERNS}
    sizes = {"bytes": gib * GIB, "free_bytes": free * GIB, "total_bytes": 80 * GIB, "stopped": stopped}
    return {"tested": sizes, **patterns, "complete": {"patterns": 12}, **more}


def facts(*each: Any) -> Facts:
    base = machine.load("h100")
    replies = dict(base.replies)
    machine.multiply(replies, max(len(each), 1))
    plan = Reply(
        "ok",
        {"workloads": {"memory-pattern": "memory-pattern"}, "gpus": list(range(len(each))), "left_alone": {}, "kind": "busy"},
    )
    runs = {f"memory-pattern:gpu{index}": Reply("ok", value) for index, value in enumerate(each)}
    return Facts(replace(base, replies=replies, measured={"plan": plan, **runs}))


def judged(*each: Any) -> list[Finding]:
    return list(CHECK.judge(facts(*each)))


def test_good_memory_passes() -> None:
    assert judged(values(), values()) == []
    assert CHECK.summary(facts(values(), values(70))) == "88% of the memory tested with 12 patterns, no wrong words"
    assert [figure.value for figure in CHECK.figures(facts(values(), values(70)))] == [96.25, 87.5]


def test_wrong_words_fail() -> None:
    word = {"address": "0x7f0", "words": 3, "expected": "0x0", "read_again": "0x1", "wrong_bits": 1}
    (finding,) = judged(values(), values(address={"wrong_words": 3, "gb_per_s": 1.0, "wrong": [word]}))
    assert finding.message == "GPU 1: 3 wrong words of 8 bytes in 1 patterns (address), the first at 0x7f0 with 1 wrong bit"
    assert finding.problem.action is Action.REPLACE_HARDWARE
    assert finding.gpu == 1
    again = dict(word, wrong_bits=0)
    (finding,) = judged(values(address={"wrong_words": 3, "gb_per_s": 1.0, "wrong": [again]}))
    assert finding.message.endswith("the first at 0x7f0, which was correct when read again")


def test_an_error_that_ecc_cannot_correct_fails() -> None:
    run = values(uncorrectable={"pattern": "hash 2", "error": "cuMemcpyDtoH_v2: CUDA_ERROR_ECC_UNCORRECTABLE (214)"})
    del run["complete"]
    (finding,) = judged(run)
    assert finding.problem.id == "gpu-memory-uncorrectable"


def test_memory_that_others_hold_is_not_called_good() -> None:
    with pytest.raises(Skip, match=r"GPU 0: 25% of its memory were tested and good; 58\.0 GiB were in use") as skip:
        judged(values(20, 22))
    assert skip.value.kind == Skip.BUSY


def test_an_allocation_that_fails_is_never_a_pass() -> None:
    (finding,) = judged(values(8, 79, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)"))
    assert finding.problem.id == "gpu-memory-not-allocatable"
    with pytest.raises(Skip):
        judged(values(0, 79))


def test_a_test_that_was_cut_off_is_not_called_good() -> None:
    run = values()
    del run["complete"]
    with pytest.raises(Skip, match="did not finish"):
        judged(run)
