"""CuPy computes correctly on each GPU: a matrix product, kernels that it compiles, a Fourier transform.

What it means
CuPy may be importable and still not work: it loads cuBLAS, cuFFT, NVRTC and the headers that NVRTC needs on first use. A library
of another CUDA release fails only then.

How it is judged
- A matrix product in fp32 (cuBLAS) of whole numbers: the result must be exact. Its speed is compared with the datasheet times the
  share that healthy GPUs reach.
- A kernel written in CUDA C and an expression, both freshly compiled by NVRTC: each element is compared.
- A Fourier transform (cuFFT): compared with NumPy's in double precision, and its inverse with the input.

Known exceptions
The check is skipped without CuPy. CUPY_TF32=1 makes the product faster than expected. Libraries that cannot be loaded are
reported by measurements, with the original error.

References
https://docs.cupy.dev/en/stable/install.html
https://docs.cupy.dev/en/stable/reference/environment.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Run
from gpudoctor.judging.measured import expect, faults, slowness
from gpudoctor.judging.measured.expect import NOTHING, Expected
from gpudoctor.judging.measured.shortfalls import between
from gpudoctor.model import Check, Figure, Finding, Skip

WORKLOAD = "cupy-kernels"
MOST_ERROR = 1e-5  # of a single-precision transform of a million points; the usual error is below 1e-6
PARTS = (
    ("dot", "CuPy matrix product", "tflops", "TFLOP/s"),
    ("raw_kernel", "CuPy kernel (saxpy)", "gb_per_s", "GB/s"),
    ("expression", "CuPy expression", "milliseconds", "ms"),
    ("fft", "CuPy Fourier transform", "milliseconds", "ms"),
)


def figures(facts: Facts) -> Iterator[Figure]:
    for run in facts.measured.runs(WORKLOAD):
        for name, words, key, unit in PARTS:
            if name in run.values:
                values = run.values[name]
                expected = reachable(facts, run) if name == "dot" else NOTHING
                yield Figure(
                    words,
                    values[key],
                    unit,
                    run.gpu,
                    expected.value,
                    expected.rule,
                    less_is_better=unit == "ms",
                    wrong=wrong(values),
                    during=values.get("during", {}),
                    unlisted=expected.unlisted,
                )


def reachable(facts: Facts, run: Run) -> Expected:
    """The expected speed of the product; a small one, used if little memory was free, is not judged."""
    assert run.gpu is not None
    return expect.tflops(facts, run.gpu, "fp32") if run.values["dot"]["side"] >= 4096 else NOTHING


def wrong(values: dict[str, Any]) -> str:
    """How a result differs from the right one, "" if it does not."""
    words = [f"{values[key]} wrong {key[6:]}" for key in ("wrong_rows", "wrong_elements") if values.get(key)]
    for key, what in (("error", "off"), ("round_trip_error", "off after the inverse")):
        if key in values and (values[key] is None or values[key] > MOST_ERROR):
            words.append("not finite" if values[key] is None else f"{what} by {values[key]:.2g}")
    return ", ".join(words)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from slowness.judge(facts, facts.once(figures))
    for run in facts.measured.runs(WORKLOAD):
        missing = [words for name, words, *_ in PARTS if name not in run.values]
        if missing:
            raise Skip(f"{', '.join(missing)} did not finish: see measurements", Skip.NO_ANSWER)


def summary(facts: Facts) -> str:
    cold = [run.values[name]["cold_seconds"] for run in facts.measured.runs(WORKLOAD) for name, *_ in PARTS if name in run.values]
    speeds = [figure.value for figure in facts.once(figures) if figure.unit == "TFLOP/s"]
    said = [f"{between(speeds, 1)} TFLOP/s in fp32"] if speeds else []
    return "CuPy: " + ", ".join([*said, f"compiles in at most {max(cold, default=0):.1f} s", "all results correct"])


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=faults.ALL,
    needs=("cuda-context",),
    explained_by=("cupy",),
    level="standard",
    workloads=(WORKLOAD,),
    figures=figures,
)
