"""JAX finds each GPU, and a jitted matrix product on it is right.

What it means
If JAX finds no GPU, it prints one warning and continues on the CPU, a hundred times slower. Its CUDA plugin, the driver and the
CUDA libraries must all match.

How it is judged
JAX lists its GPUs. On each one, it compiles and runs a matrix product in fp32 of whole numbers: the result must be exact. Its
speed is compared with the datasheet value for fp32 times the share that healthy GPUs reach, or for TF32 if JAX uses that.

Known exceptions
The check is skipped without JAX, without its CUDA plugin, or with JAX_PLATFORMS=cpu.

References
https://docs.jax.dev/en/latest/installation.html
https://docs.jax.dev/en/latest/gpu_memory_allocation.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.judging.measured import faults, products, slowness
from gpudoctor.judging.measured.shortfalls import between
from gpudoctor.model import Action, Check, Figure, Finding, Fix, Problem, Skip

WORKLOAD = "jax-matmul"
REASON = re.compile(
    r"^(?:\w*Error: .+|.*Unable to initialize backend 'cuda'.+)$", re.M
)  # in the log, before JAX falls back to the CPU
DEVICES = "<python> -c 'import jax; print(jax.devices())'"

NO_GPU = Problem(
    id="jax-sees-no-gpu",
    title="JAX has its CUDA plugin but finds no GPU",
    why="The driver works with the GPU, but JAX's plugin did not start on it. JAX prints one warning and continues on the CPU. "
    "A library that the plugin needs is missing or too old, or LD_LIBRARY_PATH puts another one first.",
    action=Action.INSTALL,
    fixes=(
        look("Read why the plugin did not start", "JAX_PLATFORMS=cuda <python> -c 'import jax; jax.devices()'"),
        Fix(
            "Unset LD_LIBRARY_PATH, so that no other CUDA libraries are loaded",
            "unset LD_LIBRARY_PATH",
            verify=DEVICES,
            where="shell",
        ),
        Fix(
            "Reinstall JAX with its plugin and its CUDA libraries",
            "<python> -m pip install -U --force-reinstall <package>",
            needs=("network",),
            verify=DEVICES,
            kind="install",
        ),
    ),
    references=("https://docs.jax.dev/en/latest/installation.html",),
)


def figures(facts: Facts) -> Iterator[Figure]:
    yield from products.figures(facts, WORKLOAD, "JAX matrix product")


def judge(facts: Facts) -> Iterator[Finding]:
    for run in facts.measured.runs(WORKLOAD):
        backend = run.values.get("backend", {})
        if backend.get("refusal"):
            package = "jax[cuda12]" if facts.cuda.driver_version < (13, 0) else "jax[cuda13]"
            said = REASON.findall(run.values.get("prints", ""))
            words = (
                f"JAX {backend['version']} continues on the {backend['platform'].upper()}: {(said or [backend['refusal']])[-1]}"
            )
            yield NO_GPU.found(words, {"package": package, "refusal": backend["refusal"]}, packages=("jax",))
            return
    yield from slowness.judge(facts, facts.once(figures))
    if any("matmul" not in run.values for run in facts.measured.runs(WORKLOAD)):
        raise Skip("JAX's matrix product did not finish: see measurements", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    cold = [run.values["matmul"]["cold_seconds"] for run in facts.measured.runs(WORKLOAD) if "matmul" in run.values]
    speeds = [figure.value for figure in facts.once(figures)]
    said = [f"{between(speeds)} TFLOP/s"] if speeds else []
    return "JAX: " + ", ".join([*said, f"first run including compilation {max(cold, default=0):.1f} s", "all rows correct"])


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_GPU, *faults.ALL),
    needs=("cuda-context",),
    explained_by=("jax",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
