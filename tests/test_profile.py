"""`gpudoctor profile`: from a trace to the tables and the problems, on programs with one fault and on their mended twins."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each import each
from simulated import BASE_NS, GEMM, NCCL, POINTWISE, SGEMM, Program, snapshot, training

from gpudoctor import catalog, doctor
from gpudoctor.checkup import Checkup
from gpudoctor.facts import shapes
from gpudoctor.judging.jobs import kernel_names
from gpudoctor.model import Reply, Report, Status

CHECKS = {id: check for id, check in catalog.checks().items() if id.startswith("profiled-")}
LONG, SHORT = 400.0, 3.0


def report(profile: dict[str, Any], **more: Any) -> Report:
    return doctor.judge(snapshot(profile, **more), CHECKS)


def problems(found: Report) -> list[str]:
    return [entry.problem for entry in found.diagnosis]


def well(program: Program) -> None:
    """A step in which the host is ahead of the GPU."""
    program.copy(1 << 20, 30.0, "Pinned")
    for _ in range(8):
        program.operator("aten::mm", [(GEMM, LONG)], dims=[[4096, 4096], [4096, 4096]])
        program.operator("aten::gelu", [(POINTWISE, 60.0)])


def reads_each_loss(program: Program) -> None:
    well(program)
    program.item("train.py:12")
    program.python(150.0)


def reads_some_losses(program: Program) -> None:
    well(program)
    if len(program.steps_ns) % 10 == 9:
        program.item("train.py:12")


def saves_once(program: Program) -> None:
    """A checkpoint in one step of all."""
    well(program)
    if len(program.steps_ns) == 6:
        for _ in range(40):
            program.item("train.py:37")
        program.python(200_000.0, "train.py:37")


def copies_results(program: Program) -> None:
    well(program)
    with program._inside("aten::to", "train.py:83"):
        program._copy("Memcpy DtoH (Device -> Pageable)", 256 << 20, 9000.0)
        program._wait()


def lengthens(program: Program) -> None:
    program.operator("aten::mm", [(GEMM, 300.0)])
    program.operator("aten::cat", [("void at::native::CatArrayBatchedCopy<int>(x)", 600.0)])


def pageable(program: Program) -> None:
    program.copy(64 << 20, 6000.0)
    well(program)


def single(program: Program) -> None:
    for _ in range(8):
        program.operator("aten::mm", [(SGEMM, LONG)])


def tf32(program: Program) -> None:
    for _ in range(8):
        program.operator("aten::mm", [("cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4", LONG / 4)])


def small(program: Program) -> None:
    for _ in range(100):
        program.operator("aten::add", [(POINTWISE, SHORT)])


def graphed(program: Program) -> None:
    """The same work, launched at once."""
    program.operator("aten::graph", [(POINTWISE, SHORT)] * 100, host=0.0)
    program.gpu = program.gpu  # kernels of a graph follow each other


def computes_in_python(program: Program) -> None:
    program.operator("aten::mm", [(GEMM, LONG)])
    program.python(2000.0, "train.py:33")


def loads(program: Program) -> None:
    program.load(9000.0)
    well(program)


def loads_ahead(program: Program) -> None:
    program.load(20.0)
    well(program)


def allocates(program: Program) -> None:
    program.operator("aten::mm", [(GEMM, 100.0)])
    program.malloc(900.0, "cudaFree")
    program.malloc(600.0)


def falls_back(program: Program) -> None:
    with program._inside("aten::scaled_dot_product_attention", ""):
        program.operator("aten::_scaled_dot_product_attention_math", [(GEMM, 200.0), (POINTWISE, 300.0), (GEMM, 200.0)])


def fused(program: Program) -> None:
    with program._inside("aten::scaled_dot_product_attention", ""):
        program.operator("aten::_scaled_dot_product_flash_attention", [("void pytorch_flash::flash_fwd_kernel<x>(y)", 200.0)])


def reduces_at_the_end(program: Program) -> None:
    well(program)
    program.all_reduce(2000.0, waits=True)


def reduces_meanwhile(program: Program) -> None:
    program.all_reduce(2000.0, waits=False)
    well(program)


def convolves(program: Program) -> None:
    number = len(program.steps_ns)
    program.operator(
        "aten::cudnn_convolution",
        [("sm90_xmma_fprop_implicit_gemm_bf16", LONG)] * 4,
        dims=[[8, 3, 200 + number, 200], [64, 3, 7, 7]],
    )


def everything_well(program: Program) -> None:
    """All that the checks look at, and nothing to find."""
    loads_ahead(program)
    fused(program)
    program.operator(
        "aten::cudnn_convolution", [("sm90_xmma_fprop_implicit_gemm_bf16", LONG)], dims=[[8, 3, 224, 224], [64, 3, 7, 7]]
    )
    program.all_reduce(500.0, waits=False)
    well(program)


RECOMPILED = {
    "total": 9,
    "in_window": [{"function": "forward", "file": "model.py", "line": 7, "seconds": 3.5, "reason": "size mismatch at index 0"}],
}
FIVE_GB = 5 << 30
LATE_AT = {"samples": [(BASE_NS + 150_000_000, 0)], "places": [[["train.py", 37, "keep"], ["train.py", 37, "keep"], "_save"]]}
FAULTS: dict[str, tuple[Callable[[Program], None], dict[str, Any], Callable[[Program], None], dict[str, Any]]] = {
    "synchronises-in-every-step": (reads_each_loss, {}, reads_some_losses, {}),
    "copies-from-pageable-memory": (pageable, {}, well, {}),
    "matmul-in-full-fp32": (single, {"device": {"capability": [9, 0]}}, single, {"device": {"capability": [7, 0]}}),
    "launch-bound": (small, {}, graphed, {}),
    "gpu-waits-for-python": (computes_in_python, {}, well, {}),
    "gpu-waits-for-data-loader": (loads, {}, loads_ahead, {}),
    "allocator-returns-memory-in-steps": (allocates, {}, well, {}),
    "attention-not-fused": (falls_back, {}, fused, {}),
    "communication-not-overlapped": (reduces_at_the_end, {}, reduces_meanwhile, {}),
    "cudnn-benchmark-with-changing-shapes": (
        *(convolves, {"settings": {"cudnn_benchmark": True}}),
        *(convolves, {"settings": {"cudnn_benchmark": False}}),
    ),
    "compiles-in-steps": (well, {"compiled": RECOMPILED}, well, {"compiled": {"total": 2, "in_window": []}}),
    "checkpoints-stop-the-gpu": (saves_once, {"late": LATE_AT}, well, {}),
    "some-steps-stop-the-gpu": (saves_once, {}, well, {}),
    "results-copied-to-host-in-steps": (copies_results, {}, reads_some_losses, {}),
    "tensors-lengthened-by-cat": (lengthens, {}, well, {}),
    "gpu-memory-grows-in-steps": (
        *(well, {"held": [(step, FIVE_GB + step // 10 * (800 << 20)) for step in range(100)]}),
        *(well, {"held": [(step, FIVE_GB + step % 10 * (80 << 20)) for step in range(100)]}),
    ),
    "loss-scale-never-settles": (well, {"scaler_updates": 20}, well, {"scaler_updates": 10}),
}


@each("problem", FAULTS)
def test_a_fault_is_found_and_its_mended_twin_is_clean(problem: str, tmp_path: Path) -> None:
    fault, told, mended, told_of_mended = FAULTS[problem]
    found = report(training(fault).profile(tmp_path, **told))
    assert problems(found) == [problem]
    assert problems(report(training(mended).profile(tmp_path, **told_of_mended))) == []
    assert problems(report(training(fault).profile_with_detail(tmp_path, **told))) == [problem]
    assert problems(report(training(mended).profile_with_detail(tmp_path, **told_of_mended))) == []


@each(
    ("name", "kind", "tensor", "precision"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", "matmul", True, "half"),
        ("nvjet_sm90_sst_128x64_32x4_TNT", "matmul", True, "tf32"),
        ("nvjet_hsh_64x8_64x16", "matmul", True, "half"),
        ("ampere_sgemm_128x64_tn", "matmul", False, "single"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(Params)", "matmul", False, "single"),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma_execute_kernel__5x_cublas",
            "matmul",
            False,
            "single",
        ),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x128x32_execute_segment_k_off_kernel", "matmul", True, "tf32"),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4", "matmul", True, "tf32"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", "matmul", True, "half"),
        ("void gemv2T_kernel_val<int, int, float>(x)", "matmul", None, ""),
        ("void pytorch_flash::flash_fwd_kernel<x>(y)", "attention", None, ""),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention", True, "half"),
        ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckcrs_nchw", "convolution", False, "single"),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(x)>(y)",
            "elementwise",
            None,
            "",
        ),
        (NCCL, "communication", None, ""),
    ],
)
def test_the_name_of_a_kernel_says_what_it_is(name: str, kind: str, tensor: bool | None, precision: str) -> None:
    assert kernel_names.about(name) == (kind, tensor, precision)


def empties(program: Program) -> None:
    """cudaFree waits for the GPU, which then waits for Python and the first launch as well."""
    program.operator("aten::mm", [(GEMM, 900.0)])
    program.malloc(1000.0, "cudaFree")
    program.python(400.0)
    for _ in range(8):
        program.operator("aten::add", [(POINTWISE, SHORT)], host=8.0)


def test_idle_time_after_a_cuda_free_is_that_of_the_allocator(tmp_path: Path) -> None:
    found = training(empties).profile(tmp_path)
    assert problems(report(found))[0] == "allocator-returns-memory-in-steps"
    assert found["gaps_s"]["allocating"] > 0.004


def test_a_well_tuned_program_passes_with_its_shares(tmp_path: Path) -> None:
    found = report(training(well).profile(tmp_path))
    assert problems(found) == []
    said = next(row.message for row in found.checks if row.id == "profiled-time")
    assert said.startswith(("the GPU is busy 99", "the GPU is busy 100"))
    assert "10 steps of 3." in said


def broken(value: Any, number: int) -> Any:
    """One of the values within a profile is of another type; which, and of which, depends on the number."""
    others: tuple[Any, ...] = ("x", -1, None, [], {}, [1], {"a": []}, 1e308, True)
    places: list[tuple[Any, Any]] = []

    def walk(inside: Any) -> None:
        for key, held in inside.items() if isinstance(inside, dict) else enumerate(inside):
            places.append((inside, key))
            if isinstance(held, (dict, list)):
                walk(held)

    again = json.loads(json.dumps(value))
    walk(again)
    inside, key = places[number * 7919 % len(places)]
    inside[key] = others[number % len(others)]
    return again


KERNEL = {
    "name": "k",
    "stalls": {"wait": 1.0},
    "tuned": [{"kernel": "k", "by": "Triton", "key": "", "configs": [{"config": {"BLOCK": 64}, "ms": 0.5}]}],
    "code": {
        "function": "k",
        "origin": "Triton",
        "chosen": 0,
        "variants": [{"warps": 4, "registers": 32, "instructions": 9, "local": 0}],
        "lines": [
            {"file": "k.py", "line": 3, "text": "x", **dict.fromkeys(["ptx", "sass", "global", "shared", "local", "tensor"], 1)}
        ],
    },
}


@pytest.mark.slow
def test_a_profile_of_any_form_breaks_no_report(tmp_path: Path) -> None:
    whole = training(everything_well).profile(
        tmp_path, memory={"allocated_bytes.all.peak": 1}, compiled=RECOMPILED, scaler_updates=3
    )
    for number in range(100):
        value = {"line": "x", "notes": [], "ranks": [whole], "kernel": KERNEL}
        taken = snapshot()
        taken.replies["job-profile"] = Reply("ok", broken(value, number))
        taken = replace(taken, replies=shapes.all_fitting(taken.replies))
        found = doctor.judge(taken, CHECKS)
        assert [row.message for row in found.checks if row.status is Status.ERROR] == [], number
        for form in ("text", "html", "markdown", "json"):
            Checkup(found, taken).render(form)
