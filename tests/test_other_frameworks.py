"""A PyTorch for the CPU beside other frameworks: where it may be meant, and where a toolkit beside PyTorch is worth a word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import machine
from each import each

from gpudoctor import catalog, doctor
from gpudoctor.model import Reply, Snapshot, Status

PLACE = "/home/user/work/.venv/lib/python3.11/site-packages"


def with_packages(case: str, versions: dict[str, str], **replies: Any) -> Snapshot:
    taken = machine.load(case)
    known = [package for package in taken.replies["packages"].value if package["name"] != "cupy_cuda12x"]
    more = [{"name": name, "version": version, "location": PLACE} for name, version in versions.items()]
    told = {question: machine._changed(taken.replies.get(question), change) for question, change in replies.items()}
    return replace(taken, replies={**taken.replies, **told, "packages": Reply("ok", known + more)})


def status(taken: Snapshot, check: str, problem: str) -> Status | None:
    report = doctor.judge(taken, doctor.select(catalog.checks(), "quick", [check]))
    return next((entry.status for entry in report.diagnosis if entry.problem == problem), None)


@each(
    ("versions", "told"),
    [
        ({}, Status.FAIL),
        ({"cupy-cuda12x": "13.6.0"}, Status.WARN),
        ({"jax": "0.7.2", "jaxlib": "0.7.2", "jax-cuda12-plugin": "0.7.2"}, Status.WARN),
        ({"jax": "0.7.2", "jaxlib": "0.7.2"}, Status.FAIL),
        ({"tensorflow": "2.19.0", "nvidia-cudnn-cu12": "9.3.0.75"}, Status.WARN),
        ({"tensorflow": "2.19.0"}, Status.FAIL),
        ({"numba": "0.61.0", "numba-cuda": "0.15.0"}, Status.WARN),
        ({"numba": "0.61.0"}, Status.FAIL),
        ({"cupy-cuda12x": "13.6.0", "vllm": "0.11.0"}, Status.FAIL),
        ({"cupy-cuda12x": "13.6.0", "bitsandbytes": "0.48.0"}, Status.FAIL),
        ({"cupy-cuda12x": "13.6.0", "torchvision": "0.24.1+cu126"}, Status.FAIL),
        ({"cupy-cuda12x": "13.6.0", "torchvision": "0.24.1+cpu"}, Status.WARN),
    ],
)
def test_a_torch_for_the_cpu_fails_unless_another_framework_has_the_gpu(versions: dict[str, str], told: Status) -> None:
    taken = with_packages("cupy-on-the-gpu-beside-a-cpu-torch", versions)
    assert status(taken, "torch", "torch-cpu-only-wheel") is told


LINKED = {"toolchain": {"default": "/usr/local/cuda-11.8"}}


@each(
    ("versions", "replies", "told"),
    [
        ({}, {}, None),
        ({"deepspeed": "0.18.0"}, {}, None),
        ({}, LINKED, None),
        ({"deepspeed": "0.18.0"}, LINKED, Status.WARN),
        ({"flash-attn": "2.8.3"}, LINKED, Status.WARN),
        ({"ninja": "1.13.0"}, LINKED, Status.WARN),
        ({}, {**LINKED, "environment": {"CUDA_HOME": "/usr/local/cuda-11.8"}}, Status.WARN),
    ],
)
def test_another_toolkit_is_told_where_something_builds(versions: dict[str, str], replies: dict[str, Any], told: Status) -> None:
    taken = with_packages("healthy-cu126-with-leftovers-of-cuda-118", versions, **replies)
    assert status(taken, "toolkit-torch-mismatch", "nvcc-torch-cuda-mismatch") is told
