"""ONNX Runtime runs a session on each GPU, and a matrix product in it is right.

What it means
If the CUDA provider of ONNX Runtime cannot load its libraries, a session prints a warning and runs on the CPU, many times
slower. That the provider is listed as available does not prove that it loads.

How it is judged
A session with a matrix product in fp32 of whole numbers runs on each GPU, with only the CUDA provider asked for. The session
must use it, and the result must be exact. The speed is compared with the datasheet value for fp32 times the share that healthy
GPUs reach, or for TF32 if ONNX Runtime uses that.

Known exceptions
Without ONNX Runtime, or with its CPU package, the check is skipped. NVIDIA's wheels are loaded first (preload_dlls), as its
guide recommends; a program that does not call it can still miss libraries.

References
https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import faults, products, slowness
from gpudoctor.judging.measured.shortfalls import between
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip

WORKLOAD = "onnxruntime-matmul"
DISTRIBUTION = "onnxruntime-gpu"
CAUSES = ("onnxruntime-cuda-ep-lib-missing", "onnxruntime-driver-too-old")


NO_GPU = Problem(
    id="onnxruntime-session-without-gpu",
    title="A session of ONNX Runtime falls back to the CPU",
    why="The package has the CUDA provider, but it did not load, usually because cuDNN or cuBLAS of the right version is "
    "missing. ONNX Runtime prints a warning and continues on the CPU.",
    action=Action.INSTALL,
    fixes=(
        look("Read why the provider did not load", "<python> -c 'import onnxruntime; onnxruntime.print_debug_info()'"),
        Fix(
            "Install ONNX Runtime with the CUDA libraries that it needs",
            "<python> -m pip install -U 'onnxruntime-gpu[cuda,cudnn]'",
            needs=("network",),
            verify="gpudoctor check --only onnxruntime-matmul",
            kind="install",
        ),
    ),
    references=("https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html",),
)


def figures(facts: Facts) -> Iterator[Figure]:
    yield from products.figures(facts, WORKLOAD, "ONNX Runtime matrix product")


def judge(facts: Facts) -> Iterator[Finding]:
    for run in facts.measured.runs(WORKLOAD):
        backend = run.values.get("backend", {})
        if backend.get("refusal"):
            words = f"GPU {run.gpu}: ONNX Runtime {backend['version']}: {backend['refusal']}"
            found = NO_GPU.found(words, packages=(DISTRIBUTION,))
            yield replace(found, causes=CAUSES)
            return
    yield from slowness.judge(facts, facts.once(figures))
    if any("matmul" not in run.values for run in facts.measured.runs(WORKLOAD)):
        raise Skip("ONNX Runtime's matrix product did not finish: see measurements", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    speeds = [figure.value for figure in facts.once(figures)]
    return f"ONNX Runtime: {between(speeds)} TFLOP/s, all rows correct"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_GPU, *faults.ALL),
    needs=("cuda-context",),
    explained_by=("onnxruntime",),
    level="full",
    workloads=(WORKLOAD,),
    figures=figures,
)
