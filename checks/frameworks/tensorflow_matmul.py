"""TensorFlow finds each GPU, and a matrix product on it is right.

What it means
If TensorFlow cannot load one of its CUDA libraries, it prints "Cannot dlopen some GPU libraries" and continues on the CPU,
many times slower.

How it is judged
At level full, TensorFlow lists its GPUs, and multiplies matrices of whole numbers in fp32 on each: the result must be exact.
The speed is compared with the datasheet value for fp32 times the share that healthy GPUs reach, or for TF32, which TensorFlow
uses unless it is disabled.

Known exceptions
Without TensorFlow, or with a build for the CPU, the check is skipped.

References
https://www.tensorflow.org/install/pip
https://www.tensorflow.org/guide/gpu
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import faults, products, slowness
from gpudoctor.judging.measured.shortfalls import between
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip

WORKLOAD = "tensorflow-matmul"
DISTRIBUTION = "tensorflow"
CAUSES = ("tensorflow-cuda-libraries-missing", "tensorflow-cudnn-too-old")


NO_GPU = Problem(
    id="tensorflow-sees-no-gpu",
    title="TensorFlow is built for CUDA but finds no GPU",
    why="The driver works with the GPU, but TensorFlow could not load all of its CUDA libraries. It prints one warning and "
    "continues on the CPU.",
    action=Action.INSTALL,
    fixes=(
        look(
            "Read which library is missing", "<python> -c 'import tensorflow; print(tensorflow.config.list_physical_devices())'"
        ),
        Fix(
            "Unset LD_LIBRARY_PATH, so that no other CUDA libraries are loaded",
            "unset LD_LIBRARY_PATH",
            verify="gpudoctor check --level full --only tensorflow-matmul",
            where="shell",
        ),
        Fix(
            "Reinstall TensorFlow with its CUDA libraries",
            "<python> -m pip install -U --force-reinstall 'tensorflow[and-cuda]'",
            needs=("network",),
            verify="gpudoctor check --level full --only tensorflow-matmul",
            kind="install",
        ),
    ),
    references=("https://www.tensorflow.org/install/pip",),
)


def figures(facts: Facts) -> Iterator[Figure]:
    yield from products.figures(facts, WORKLOAD, "TensorFlow matrix product")


def judge(facts: Facts) -> Iterator[Finding]:
    for run in facts.measured.runs(WORKLOAD):
        backend = run.values.get("backend", {})
        if backend.get("refusal"):
            words = f"GPU {run.gpu}: TensorFlow {backend['version']}: {backend['refusal']}"
            found = NO_GPU.found(words, packages=(DISTRIBUTION,))
            yield replace(found, causes=CAUSES)
            return
    yield from slowness.judge(facts, facts.once(figures))
    if any("matmul" not in run.values for run in facts.measured.runs(WORKLOAD)):
        raise Skip("TensorFlow's matrix product did not finish: see measurements", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    speeds = [figure.value for figure in facts.once(figures)]
    return f"TensorFlow: {between(speeds)} TFLOP/s, all rows correct"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_GPU, *faults.ALL),
    needs=("cuda-context",),
    explained_by=("tensorflow",),
    level="full",
    workloads=(WORKLOAD,),
    figures=figures,
)
