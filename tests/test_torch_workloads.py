"""What is measured through torch: on the CPU where torch is installed, and how the checks judge what it gives."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import pytest
from each import each

from gpudoctor import catalog, doctor
from gpudoctor.model import Figure, Reply, Skip, Status
from gpudoctor.worker.measuring import low_precision, torch_gpu
from gpudoctor.worker.measuring.bench import Bench, read
from gpudoctor.worker.workloads import attention, caching_allocator, convolution, cuda_graphs, gemm, training_step

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]  # it takes seconds to import

Run = Callable[..., dict[str, Any]]


class Event:
    """As torch.cuda.Event, of this process's own time."""

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, after: Event) -> float:
        return (after.at - self.at) * 1e3


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `measure` of a workload on the CPU, in small sizes and little time."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # threads wait for each other in loops, which costs a busy machine most
    changes = {"event": Event, "synchronize": int, "free_bytes": lambda: 1 << 30, "capability": lambda: (9, 0)}
    for name, change in {**changes, "FLUSH_BYTES": 1 << 20, "REPEATS_MS": 3.0}.items():
        monkeypatch.setattr(torch_gpu, name, change)
    monkeypatch.setattr(torch_gpu.timed, "__defaults__", (1.0, 1))
    for name, value in {"SIZES": (256, 128), "PROBE": 128, "WARM_UP_MS": 3.0, "MOST_ROUNDS": 2}.items():
        monkeypatch.setattr(gemm, name, value)

    def measured(measure: Callable[..., None], *more: Any) -> dict[str, Any]:
        torch.manual_seed(0)
        file = str(tmp_path / "results")
        measure(Bench(file, [0], "full"), torch.device("cpu"), *more)
        return read(file).values

    return measured


@each(
    ("rounds", "steady"),
    [([], False), ([[1.0]], False), ([[1.0, 9.0, 1.0], [1.004]], True), ([[1.0], [1.01]], False), ([[1.0], [2.0], [2.0]], True)],
)
def test_a_speed_is_steady_if_it_stays(rounds: list[list[float]], steady: bool) -> None:
    assert torch_gpu.is_steady(rounds) is steady


@pytest.mark.slow
def test_gemm(run: Run) -> None:
    import torch

    before = torch.get_float32_matmul_precision()
    values = run(gemm.measure)
    assert {"fp64", "fp32", "tf32", "fp16", "bf16"} <= set(values)
    assert "compute capability 9.0, and nvfp4 needs 10.0" in values["nvfp4"]["unavailable"]
    for name in {name for name in set(values) & set(gemm.PRECISIONS) if "unavailable" not in values[name]}:
        result = values[name]
        assert not result["wrong"], name
        assert (result["relative_error"], result["allowed_error"]) == (0, 0) if name == "int8" else True
        assert name == "int8" or 0 < result["relative_error"] < result["allowed_error"] < 0.2
        assert result["tflops"] == pytest.approx(2 * result["size"] ** 3 / result["milliseconds"] / 1e9)
    assert values["fp64"]["allowed_error"] < 1e-12
    assert values["torch"]["version"] == torch.__version__
    assert values["libraries"] == {"cublas": [], "cublas_lt": []}
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.slow
@pytest.mark.parametrize("capability", [(7, 5), (8, 0)])
def test_gemm_leaves_out_what_the_gpu_lacks(run: Run, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch_gpu, "capability", lambda: capability)
    found = {name for name, value in run(gemm.measure).items() if name in gemm.PRECISIONS and "unavailable" not in value}
    assert found == {"fp64", "fp32", "fp16", "int8"} | ({"tf32", "bf16"} if capability >= (8, 0) else set())


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16", "int8"])
def test_gemm_notices_wrong_numbers(run: Run, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    right = gemm.product

    def product(*arguments: Any) -> Any:
        found = right(*arguments)
        found[::5, ::5] += 4 if precision == "bf16" else 1  # the root mean square is 16
        return found

    monkeypatch.setattr(gemm, "product", product)
    monkeypatch.setattr(gemm, "ROWS", 256)
    assert run(gemm.measure)[precision]["wrong"]


def test_numbers_of_four_bits() -> None:
    torch = pytest.importorskip("torch")
    one, other, scale = low_precision.quarters(torch, "float8_e4m3fn", 256, torch.device("cpu"))
    assert (one.shape, other.shape, scale.numel()) == ((256, 128), (128, 256), 256 * 16)
    first = one.view(torch.uint8)[3, 5].item()
    values = [*low_precision.FP4, *(-value for value in low_precision.FP4)]
    assert low_precision.exactly(torch, one)[3, 10:12].tolist() == [values[first & 15], values[first >> 4]]
    assert torch.equal(low_precision.exactly(torch, other), low_precision.exactly(torch, other.t()).t())


@pytest.mark.parametrize("words", ["CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmul", '"addmm" not implemented for Half'])
def test_what_torch_refuses_is_unavailable(run: Run, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    refuse = lambda *_: (_ for _ in ()).throw(RuntimeError(words))  # noqa: E731
    monkeypatch.setattr(low_precision, "whole", refuse)
    assert run(gemm.measure)["int8"] == {"unavailable": words}
    monkeypatch.setattr(low_precision, "whole", lambda *_: (_ for _ in ()).throw(RuntimeError("an illegal memory access")))
    with pytest.raises(RuntimeError, match="illegal"):
        run(gemm.measure)


def test_a_result_that_is_no_number_is_wrong() -> None:
    torch = pytest.importorskip("torch")
    exact = torch.ones(2, 4)
    for number in (math.nan, math.inf):
        assert torch_gpu.verdict(exact * number, exact, 1.0) == {"relative_error": None, "allowed_error": 1.0, "wrong": True}
    assert torch_gpu.verdict(exact, exact, 0.0) == {"relative_error": 0.0, "allowed_error": 0.0, "wrong": False}


def test_an_error_counts_against_its_row() -> None:
    torch = pytest.importorskip("torch")
    exact = torch.tensor([[100.0, -100.0], [1.0, -1.0]])
    assert torch_gpu.relative_error(exact + 0.5, exact) == pytest.approx(0.5)


def test_sizes_fit_time_and_memory() -> None:
    cube = 8192**3
    assert gemm.largest(80 << 30, 20 / cube) == 8192
    assert gemm.largest(80 << 30, 50 / cube) == 4096  # fp32 on a GPU with 20 TFLOP/s
    assert gemm.largest(24 << 30, 850 / cube) == 2048  # fp64 on a consumer GPU
    assert gemm.largest(1 << 30) == 4096
    assert gemm.largest(1 << 20) == 1024


def test_rounding_grows_with_the_terms() -> None:
    assert torch_gpu.allowed_error("fp32", 8192) < 1e-4 < torch_gpu.allowed_error("tf32", 1)
    assert torch_gpu.allowed_error("fp64", 8192, torch_gpu.ROUNDING["fp64"]) < 1e-12
    assert torch_gpu.allowed_error("fp16", 64) < torch_gpu.allowed_error("fp16", 8192) < 0.01


def test_libraries_of_a_process() -> None:
    maps = """7f00-7f01 r--p 00000000 08:01 11 /venv/nvidia/cublas/lib/libcublas.so.13
7f01-7f02 r-xp 00001000 08:01 11                         /venv/nvidia/cublas/lib/libcublas.so.13
7f02-7f03 r--p 00000000 08:01 12                         /venv/with a space/libcublasLt.so.13
7f03-7f04 rw-p 00000000 00:00 0                          [heap]
7f04-7f05 rw-p 00000000 00:00 0
"""
    assert torch_gpu.libraries(maps, "libcublas.so") == ["/venv/nvidia/cublas/lib/libcublas.so.13"]
    assert torch_gpu.libraries(maps, "libcublasLt.so") == ["/venv/with a space/libcublasLt.so.13"]


@pytest.mark.slow
def test_convolution(run: Run) -> None:
    values = run(convolution.measure, convolution.Shape(images=4, channels=16, side=8))
    assert set(values) == {"fp16", "fp16 autotuned", "fp32", "fp32 autotuned"}
    for result in values.values():
        assert not result["wrong"]
        assert result["first_seconds"] > 0
    assert values["fp32"]["relative_error"] < 1e-5


@pytest.mark.slow
def test_convolution_restores_what_was_set(run: Run) -> None:
    import torch

    before = torch.backends.cudnn.benchmark
    run(convolution.measure, convolution.Shape(images=1, channels=4, side=4))
    assert torch.backends.cudnn.benchmark == before


@pytest.mark.parametrize(("number", "words"), [(91900, "9.19.0"), (90100, "9.1.0"), (8907, "8.9.7"), (8500, "8.5.0")])
def test_versions_of_cudnn(number: int, words: str) -> None:
    assert convolution.version_words(number) == words


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_attention(run: Run, dtype: str) -> None:
    values = run(attention.measure, dtype, attention.Shape(batch=2, heads=3, length=128, width=32))
    assert values["choice"]["dtype"] == dtype
    assert values["choice"]["implementation"] in attention.IMPLEMENTATIONS
    for name in ("default", "math"):
        assert not values[name]["wrong"]
        assert values[name]["tflops"] > 0
    assert values["efficient"]["unavailable"]


@pytest.mark.slow
def test_attention_without_its_mask_is_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    right = torch.nn.functional.scaled_dot_product_attention
    attend = lambda *inputs, is_causal: right(*inputs)  # noqa: E731
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    assert run(attention.measure, "bf16", attention.Shape(batch=1, heads=2, length=64, width=32))["default"]["wrong"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's own modules
def test_training_step(run: Run) -> None:
    values = run(training_step.measure, training_step.TINY)
    loss = values["loss"]
    assert loss["finite"]
    assert not loss["wrong"]
    assert loss["last"] < 0.9 * loss["first"]
    assert values["scaler"] == {"first_scale": 65536.0, "scale": 65536.0, "skipped_steps": 0}
    assert values["training"]["steps_per_second"] > 0


def test_losses_that_are_no_numbers() -> None:
    found = training_step.judged([2.0, math.nan], 2.0)
    assert (found["finite"], found["wrong"], found["last"]) == (False, False, None)
    assert training_step.judged([math.nan, 1.0], 2.0)["wrong"]
    assert training_step.judged([2.1, 1.0], 2.0)["wrong"]


@pytest.mark.parametrize(("scale", "steps"), [(65536.0, 0), (131072.0, 0), (16384.0, 2), (0.0, 0)])
def test_skipped_steps(scale: float, steps: int) -> None:
    class Scaler:
        get_scale = staticmethod(lambda: scale)
        get_backoff_factor = staticmethod(lambda: 0.5)

    assert training_step.skipped(65536.0, Scaler()) == steps


@each(
    ("environment", "expandable", "caching"),
    [
        ({}, False, True),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, True, True),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128, expandable_segments:true"}, True, True),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}, False, True),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "backend:native"}, True, True),
        ({"PYTORCH_CUDA_ALLOC_CONF": "garbage"}, False, True),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, False, False),
    ],
)
def test_settings_of_the_allocator(environment: dict[str, str], expandable: bool, caching: bool) -> None:
    found = caching_allocator.settings(environment)
    assert (found["expandable_segments"], found["caching"]) == (expandable, caching)


@pytest.mark.slow
def test_times_of_small_kernels(run: Run) -> None:
    """The capture itself needs a GPU."""
    import torch

    inputs, weights = cuda_graphs.operands(torch.device("cpu"))
    assert cuda_graphs.per_kernel(lambda: cuda_graphs.layers(inputs, weights))["microseconds_per_kernel"] > 0
    assert torch.isfinite(cuda_graphs.layers(inputs, weights)).all()


@pytest.mark.parametrize("workload", [gemm, convolution, attention, training_step, caching_allocator, cuda_graphs])
def test_a_torch_for_the_cpu_is_not_measured(workload: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda:
        pytest.skip("this torch has CUDA")
    with pytest.raises(Skip) as skip:
        workload.run(Bench(str(tmp_path / "results"), [0]))
    assert skip.value.kind == Skip.NOT_INSTALLED


CHECKS = ["gemm", "convolution", "attention", "training-step", "caching-allocator", "cuda-graphs"]


def judged(check: str, replies: Mapping[str, Any] | None = None, **changes: Any) -> tuple[set[str], tuple[Figure, ...]]:
    """The problems and figures of a check on a healthy H100 of which some results are changed."""
    base = machine.load("h100-measured")
    reply = base.measured[f"{check}:gpu0"]
    values = {name: machine._merged(value, changes.get(name, {})) for name, value in reply.value.items()}
    measured = {**base.measured, f"{check}:gpu0": Reply("ok", values, seconds=reply.seconds)}
    known = {name: Reply("ok", machine._merged(base.replies[name].value, change)) for name, change in (replies or {}).items()}
    taken = replace(base, measured=measured, replies={**base.replies, **known})
    report = doctor.judge(taken, doctor.select(catalog.checks(), "quick", [check]))
    return {entry.problem for entry in report.diagnosis}, tuple(report.measured.figures.get(check, ()))


@each("check", CHECKS)
def test_a_healthy_gpu_is_healthy(check: str) -> None:
    problems, figures = judged(check)
    assert problems == set()
    assert figures
    assert not any(figure.wrong for figure in figures)


@each("check", CHECKS)
def test_without_torch_nothing_is_judged(check: str) -> None:
    base = machine.load("h100-measured")
    measured = {**base.measured, f"{check}:gpu0": Reply("missing", None, "torch is not installed")}
    report = doctor.judge(replace(base, measured=measured), doctor.select(catalog.checks(), "quick", [check]))
    (row,) = [row for row in report.checks if row.id == check]
    assert row.status is Status.SKIP
    assert row.message == "torch is not installed"


@each(
    ("check", "changes", "problem"),
    [
        ("gemm", {"bf16": {"wrong": True, "relative_error": 0.9}}, "gpu-computes-wrong"),
        ("gemm", {"fp64": {"wrong": True, "relative_error": None}}, "gpu-computes-wrong"),
        ("gemm", {"fp32": {"wrong": True, "relative_error": 0.00138}}, "gpu-computes-wrong"),  # no variable explains it
        ("gemm", {"fp64": {"tflops": 20.0, "milliseconds": 55.0}}, "gpu-slower-than-expected"),
        ("convolution", {"fp16 autotuned": {"wrong": True, "relative_error": 2.0}}, "gpu-computes-wrong"),
        ("attention", {"flash": {"wrong": True, "relative_error": None}}, "gpu-computes-wrong"),
        ("attention", {"choice": {"implementation": "math"}}, "attention-without-fast-implementation"),
        ("training-step", {"loss": {"last": 1.99}}, "training-does-not-converge"),
        ("training-step", {"loss": {"finite": False, "last": None}}, "training-does-not-converge"),
        ("training-step", {"loss": {"wrong": True, "relative_error": 0.2}}, "training-does-not-converge"),
        ("training-step", {"scaler": {"scale": 1.0, "skipped_steps": 16}}, "training-does-not-converge"),
        ("caching-allocator", {"fragmentation": {"wrong_blocks": 1}}, "gpu-computes-wrong"),
        ("caching-allocator", {"fragmentation": {"empty_reserved_bytes": 1 << 30}}, "allocator-keeps-memory"),
        ("caching-allocator", {"too large": {"outcome": "RuntimeError"}}, "out-of-memory-not-survived"),
        ("caching-allocator", {"too large": {"works_after": False}}, "out-of-memory-not-survived"),
        ("cuda-graphs", {"result": {"wrong": True, "relative_error": 0.1}}, "gpu-computes-wrong"),
        ("cuda-graphs", {"graph": {"microseconds_per_kernel": 25.0}}, "cuda-graph-slower-than-launches"),
    ],
)
def test_what_is_wrong_is_named(check: str, changes: dict[str, Any], problem: str) -> None:
    problems, _ = judged(check, **changes)
    assert problems == {problem}


def test_what_was_not_verified_is_no_figure() -> None:
    """A run that was cut off after the time was taken."""
    base = machine.load("h100-measured")
    values = base.measured["gemm:gpu0"].value
    unverified = {name: value for name, value in values["bf16"].items() if name not in ("wrong", "relative_error")}
    measured = {**base.measured, "gemm:gpu0": Reply("cut", {"fp32": values["fp32"], "bf16": unverified}, "the run was cut off")}
    report = doctor.judge(replace(base, measured=measured), doctor.select(catalog.checks(), "quick", ["gemm"]))
    assert [figure.what for figure in report.measured.figures["gemm"]] == ["GEMM fp32"]


def test_small_matrices_are_not_held_against_a_datasheet() -> None:
    problems, figures = judged("gemm", bf16={"size": 2048, "milliseconds": 0.041, "tflops": 419.0})
    assert problems == set()
    assert {figure.expected for figure in figures if figure.what == "GEMM bf16 of size 2048"} == {None}
    slow, figures = judged("gemm", fp32={"size": 4096, "milliseconds": 27.0, "tflops": 5.1})  # chosen because it is slow
    assert slow == {"gpu-slower-than-expected"}


def test_fp32_that_a_variable_makes_tf32_is_no_fault() -> None:
    forced = {"wrong": True, "relative_error": 0.00138, "tflops": 374.0, "milliseconds": 2.94}
    problems, figures = judged("gemm", {"environment": {"NVIDIA_TF32_OVERRIDE": "1"}}, fp32=forced)
    assert problems == set()
    assert "GEMM fp32" not in {figure.what for figure in figures}
    broken, _ = judged("gemm", {"environment": {"NVIDIA_TF32_OVERRIDE": "1"}}, fp32={**forced, "relative_error": 0.5})
    assert broken == {"gpu-computes-wrong"}


def test_an_allocation_that_was_not_tried_is_no_fault() -> None:
    problems, _ = judged("caching-allocator", **{"too large": {"outcome": "not tried: expandable segments"}})
    assert problems == set()
