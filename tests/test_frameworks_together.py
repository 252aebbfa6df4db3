"""saxpy in torch and Triton, and arrays that go from one framework to another: the workloads without a GPU, and their checks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import machine
import pytest

from gpudoctor import catalog
from gpudoctor.facts import Facts
from gpudoctor.model import Finding, Reply, Skip
from gpudoctor.worker.measuring import square
from gpudoctor.worker.measuring.bench import Bench, read
from gpudoctor.worker.workloads import array_exchange, saxpy_torch

CHECKS = catalog.checks()
ALL_WAYS = {
    "torch to CuPy",
    "torch to Numba",
    "CuPy to torch",
    "CuPy to Numba",
    "Numba to torch",
    "Numba to CuPy",
}


class Memory:
    """An array: numbers at an address, which may be shared by several."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = numbers

    @property
    def address(self) -> int:
        return id(self.numbers)


class Copying(Memory):
    def __init__(self, numbers: list[float]) -> None:
        super().__init__(list(numbers))


def double(array: Memory) -> None:
    array.numbers[:] = [2 * number for number in array.numbers]


def side(take: Callable[[Memory], Memory] = lambda array: Memory(array.numbers)) -> array_exchange.Side:
    def made() -> Memory:
        return Memory([float(number) for number in range(array_exchange.ELEMENTS)])

    return array_exchange.Side(made, take, lambda array: array.address, lambda array: array.numbers, double)


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """What the workload hands over with these sides of CuPy and Numba."""

    def ran(**sides: Any) -> dict[str, Any]:
        torch = SimpleNamespace(cuda=SimpleNamespace(set_device=int, synchronize=int), version=SimpleNamespace(cuda="13.0"))
        monkeypatch.setattr(square, "cuda_torch", lambda: torch)
        monkeypatch.setattr(array_exchange, "of_torch", lambda _: side())
        monkeypatch.setattr(array_exchange, "ELEMENTS", 64)
        monkeypatch.setattr(array_exchange, "PARTNERS", {name: f"partner_{name}" for name in sides})
        monkeypatch.setattr(array_exchange, "OF", {name: lambda module, gpu, name=name: sides[name]() for name in sides})
        for name in sides:
            module = ModuleType(f"partner_{name}")
            module.__spec__ = SimpleNamespace()  # type: ignore[assignment]
            monkeypatch.setitem(sys.modules, f"partner_{name}", module)
        file = tmp_path / "results"
        file.unlink(missing_ok=True)
        array_exchange.run(Bench(str(file), [0]))
        return read(str(file)).values

    return ran


def judged(check: str, workload: str, values: dict[str, Any], **others: dict[str, Any]) -> tuple[list[Finding], str]:
    """What the check finds in the results of these workloads, and its summary if it finds nothing."""
    runs = {workload: values, **{name.replace("_", "-"): value for name, value in others.items()}}
    plan = {"workloads": dict.fromkeys(runs, check), "gpus": [0], "left_alone": {}, "kind": "busy"}
    measured = {"plan": Reply("ok", plan), **{f"{name}:gpu0": Reply("ok", value) for name, value in runs.items()}}
    facts = Facts(replace(machine.load("h100"), measured=measured))
    findings = list(CHECKS[check].judge(facts))
    return findings, "" if findings else CHECKS[check].summary(facts)


def test_frameworks_that_share_arrays(results: Callable[..., dict[str, Any]]) -> None:
    values = results(CuPy=side, Numba=side)
    assert set(values) == ALL_WAYS
    assert judged("array-exchange", "array-exchange", values) == ([], "torch, CuPy, Numba share arrays in all 6 directions")


def test_a_receiver_that_copies(results: Callable[..., dict[str, Any]]) -> None:
    values = results(CuPy=lambda: side(lambda array: Copying(array.numbers)))
    (finding,), _ = judged("array-exchange", "array-exchange", values)
    assert (finding.problem.id, finding.evidence["ways"]) == ("array-exchange-copies", ["torch to CuPy"])


def test_a_receiver_that_reads_other_values_or_fails(results: Callable[..., dict[str, Any]]) -> None:
    def refuse(array: Memory) -> Memory:
        raise BufferError("unsupported DLPack version")

    wrong = results(CuPy=lambda: side(lambda array: Memory([1.0, *array.numbers[1:]])))
    (finding,), _ = judged("array-exchange", "array-exchange", wrong)
    assert (finding.problem.id, finding.message) == ("array-exchange-broken", "torch to CuPy: 1 wrong elements")
    (finding,), _ = judged("array-exchange", "array-exchange", results(Numba=lambda: side(refuse)))
    assert finding.message == "torch to Numba: BufferError: unsupported DLPack version"


def test_a_partner_that_cannot_be_imported_is_left_to_its_own_check(results: Callable[..., dict[str, Any]]) -> None:
    def broken() -> array_exchange.Side:
        raise ImportError("libcublas.so.13: cannot open shared object file")

    values = results(CuPy=broken, Numba=side)
    assert values["CuPy"] == {"skipped": "ImportError: libcublas.so.13: cannot open shared object file"}
    assert judged("array-exchange", "array-exchange", values) == ([], "torch, Numba share arrays in all 2 directions")


def test_without_a_partner_nothing_passes(results: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(Skip, match="neither CuPy nor Numba is installed"):
        results()
    with pytest.raises(Skip, match="no exchange finished"):
        judged("array-exchange", "array-exchange", {"CuPy": {"skipped": "ImportError"}})


class Vector:
    """As much of a tensor as saxpy needs."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self.numbers = list(numbers)

    def repeat(self, times: int) -> Vector:
        return Vector(self.numbers * times)

    def numel(self) -> int:
        return len(self.numbers)

    def element_size(self) -> int:
        return 4

    def add_(self, x: Vector, alpha: float) -> None:
        self.numbers = [y + alpha * each for y, each in zip(self.numbers, x.numbers, strict=True)]

    def __rmul__(self, factor: float) -> Vector:
        return Vector([factor * number for number in self.numbers])

    def __ne__(self, other: object) -> Any:
        assert isinstance(other, Vector)
        count = sum(one != another for one, another in zip(self.numbers, other.numbers, strict=True))
        return SimpleNamespace(sum=lambda: SimpleNamespace(item=lambda: count))


EVENT = SimpleNamespace(record=int, elapsed_time=lambda after: 0.5)
TORCH = SimpleNamespace(
    cuda=SimpleNamespace(
        Event=lambda enable_timing: EVENT,
        synchronize=int,
        set_device=int,
        mem_get_info=lambda: (1 << 17, 1 << 34),
        get_device_capability=lambda: (9, 0),
    ),
    float32="float32",
    arange=lambda count, dtype, device: Vector([float(number) for number in range(count)]),
    zeros_like=lambda x: Vector([0.0] * x.numel()),
)


@pytest.mark.parametrize("has_triton", [True, False])
def test_saxpy_of_torch_and_triton(has_triton: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def once_wrong(y: Vector, x: Vector) -> None:
        y.add_(x, alpha=2)
        y.numbers[5] += 0.5

    monkeypatch.setattr(square, "cuda_torch", lambda: TORCH)
    monkeypatch.setattr(square, "prepare", lambda bench: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: has_triton or None)
    monkeypatch.setattr(saxpy_torch, "by_triton", lambda: once_wrong)
    file = str(tmp_path / "results")
    saxpy_torch.run(Bench(file, [0]))
    values = read(file).values
    assert values["torch"]["wrong_elements"] == 0
    assert values["torch"]["gb_per_s"] == pytest.approx(3 * 4 * 8192 / 0.5e-3 / 1e9)
    assert values.get("triton", {"wrong_elements": 0})["wrong_elements"] == has_triton
    findings, _ = judged("saxpy", "saxpy-torch", values)
    assert [finding.problem.id for finding in findings] == ["gpu-computes-wrong"] * has_triton


def test_saxpy_of_all_frameworks_in_one_line() -> None:
    ours = {name: {"gb_per_s": speed, "wrong_elements": 0} for name, speed in {"torch": 3000.0, "triton": 3010.0}.items()}
    other = {"saxpy": {"gb_per_s": 2900.0, "wrong_elements": 0}}
    findings, words = judged("saxpy", "saxpy-torch", ours, numba_kernel=other, memory_bandwidth=other)
    assert (findings, words) == ([], "saxpy in GB/s: torch 3000, Triton 3010, PTX 2900, Numba 2900; all elements correct")


def test_a_saxpy_that_did_not_finish_is_no_pass() -> None:
    with pytest.raises(Skip, match="did not finish"):
        judged("saxpy", "saxpy-torch", {"triton": {"gb_per_s": 3000.0, "wrong_elements": 0}})
