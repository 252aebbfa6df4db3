"""CuPy, Numba and JAX: the workloads on stand-ins for a GPU (NumPy, Numba's simulator, JAX's CPU), and how they are judged."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import pytest
from each import each, try_each
from waiting import HOPELESS_SECONDS

from gpudoctor import catalog
from gpudoctor.facts import Facts
from gpudoctor.model import Finding, Reply, Skip, Snapshot
from gpudoctor.worker.measuring import bench

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
CUPY, NUMBA, JAX = (catalog.checks()[id] for id in ("cupy-kernels", "numba-kernel", "jax-matmul"))

PRELUDE = """
import sys
sys.path.insert(0, {root!r})
from gpudoctor.worker.measuring.bench import Bench
from gpudoctor.worker.workloads import {workload} as workload
bench = Bench({file!r}, [0])
"""

# Of CuPy what the workload uses, with NumPy for a GPU. `damaged` names what computes wrongly.
CUPY_BY_NUMPY = """
import sys, types
import numpy
damaged = ""

class Matrix(numpy.ndarray):
    def __mul__(self, other):
        found = numpy.multiply(numpy.asarray(self), numpy.asarray(other))
        if damaged == "expression":
            found[3] += 1
        return found

class Event:
    def record(self): pass
    def synchronize(self): pass

class Device:
    attributes = {"MultiProcessorCount": 2}
    def __init__(self, number=0): pass
    def use(self): pass
    def synchronize(self): pass

class Kernel:
    def __init__(self, source, name):
        assert 'extern "C" __global__ void %s(float *y, const float *x' % name in source
    def __call__(self, grid, block, arguments):
        y, x, a, elements = arguments
        assert (len(y), a.dtype, elements.dtype) == (int(elements), numpy.float32, numpy.uint64)
        y += a * x
        if damaged == "raw_kernel":
            y[7] = 0

def dot(one, other, out):
    out[:] = numpy.asarray(one) @ numpy.asarray(other)
    if damaged == "dot":
        out[5, 5] += 1

def fft(values):
    found = numpy.fft.fft(values).astype(numpy.complex64)
    return found * (1.001 if damaged == "fft" else 1)

runtime = types.SimpleNamespace(memGetInfo=lambda: (1 << 24, 1 << 34), runtimeGetVersion=lambda: 13000)
cupy = types.ModuleType("cupy")
vars(cupy).update(
    __version__="14.2.0", float32=numpy.float32, empty=numpy.empty, dot=dot, RawKernel=Kernel,
    asarray=lambda values: values.copy().view(Matrix) if values.dtype == numpy.float32 else values,
    asnumpy=numpy.asarray, fft=types.SimpleNamespace(fft=fft, ifft=numpy.fft.ifft),
    cuda=types.SimpleNamespace(Device=Device, Event=Event, runtime=runtime, get_elapsed_time=lambda one, other: 0.5),
    get_default_memory_pool=lambda: types.SimpleNamespace(free_all_blocks=lambda: None),
)
sys.modules["cupy"] = cupy
workload.POINTS, workload.SMALL_SIDE = 1 << 14, 256
"""


@functools.cache
def python_with(module: str) -> str:
    """GPUDOCTOR_TEST_PYTHON names interpreters that have frameworks, where this one has none."""
    for python in [*filter(None, os.environ.get("GPUDOCTOR_TEST_PYTHON", "").split(":")), sys.executable]:
        if subprocess.run([python, "-c", f"import importlib.util as i; exit(i.find_spec({module!r}) is None)"]).returncode == 0:
            return python
    pytest.skip(f"needs {module}")


def ran(tmp_path: Path, module: str, workload: str, code: str = "", **variables: str) -> dict[str, Any]:
    """What a workload hands over in an interpreter that has this module."""
    file = str(tmp_path / "all")
    text = PRELUDE.format(root=str(ROOT), workload=workload, file=file) + code + "\nworkload.run(bench)\n"
    done = subprocess.run(
        [python_with(module), "-c", text],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=HOPELESS_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return bench.read(file).values


WRONG_SAXPY = """
workload.run(Bench(bench._file + ".right", [0]))
import numba.cuda
cuda = numba.cuda
def saxpy(y, x, a):
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        y[i] = a * x[i] + y[i] + (i == 9)
workload.saxpy = saxpy
"""


def test_numba_counts_wrong_elements_on_its_simulator(tmp_path: Path) -> None:
    """In one process, which starts Numba once."""
    wrong = ran(tmp_path, "numba", "numba_kernel", WRONG_SAXPY, NUMBA_ENABLE_CUDASIM="1")
    values = bench.read(str(tmp_path / "all.right")).values
    assert values["numba"]["target"] == "simulator"
    assert values["saxpy"]["elements"] == 256
    assert values["saxpy"]["cold_seconds"] > 0
    assert (values["saxpy"]["wrong_elements"], wrong["saxpy"]["wrong_elements"]) == (0, 1)


def test_cupy_verifies_each_result(tmp_path: Path) -> None:
    """All in one process, which starts NumPy once."""
    ran(tmp_path, "numpy", "cupy_kernels", CUPY_BY_NUMPY + DAMAGES)

    def is_found(damaged: str) -> None:
        values = bench.read(str(tmp_path / f"all.{damaged}")).values
        assert values["dot"]["side"] == 256
        assert values["dot"]["tflops"] == pytest.approx(2 * 256**3 / 0.5e-3 / 1e12)
        findings = CUPY.judge(Facts(taken("cupy-kernels", machine.Only(values))))
        assert [finding.message.split(": ")[1] for finding in findings] == ([NAMES[damaged]] if damaged else [])

    try_each(is_found, ((damaged, damaged) for damaged in ("", *NAMES)))


DAMAGES = """
for damaged in ("", "dot", "raw_kernel", "expression", "fft"):
    workload.run(Bench(bench._file + "." + damaged, [0]))
workload.run = lambda bench: None
"""
NAMES = {
    "dot": "CuPy matrix product",
    "raw_kernel": "CuPy kernel (saxpy)",
    "expression": "CuPy expression",
    "fft": "CuPy Fourier transform",
}
PRODUCTS = """
import numpy
from gpudoctor.worker.measuring import matrices
one, other = matrices.whole_numbers(300)
product = one @ other
counts = [matrices.wrong_rows(one, other, product)]
product[7, 7] += 1
product[9, 1] = numpy.nan
counts.append(matrices.wrong_rows(one, other, product))
bench.keep("counts", counts=counts)
workload.run = lambda bench: None
"""


def test_a_wrong_element_shows_in_its_row(tmp_path: Path) -> None:
    assert ran(tmp_path, "numpy", "jax_matmul", PRODUCTS)["counts"]["counts"] == [0, 2]


ON_THE_CPU = """
import jax
why_not, workload.why_not = workload.why_not, lambda jax: None
workload.run(Bench(bench._file + ".refused", [0]))
workload.why_not = why_not
real = jax.devices
jax.devices = lambda platform: real()
workload.SIDE = 256
"""
SKIPPED = """
from gpudoctor.model import Skip
run = workload.run
def told(bench):
    try:
        run(bench)
    except Skip as skip:
        bench.keep("skip", reason=skip.reason)
workload.run = told
"""


def test_jax_without_a_gpu_and_on_its_cpu(tmp_path: Path) -> None:
    """In one process, which starts JAX once."""
    values = ran(tmp_path, "jax", "jax_matmul", ON_THE_CPU)
    assert values["matmul"]["wrong_rows"] == 0
    assert values["matmul"]["tflops"] > 0
    backend = bench.read(str(tmp_path / "all.refused")).values["backend"]
    assert (backend["platform"], backend["devices"]) == ("cpu", 0)
    assert "gpu" in backend["refusal"]


def test_jax_that_is_not_meant_to_use_a_gpu(tmp_path: Path) -> None:
    values = ran(tmp_path, "jax", "jax_matmul", SKIPPED, JAX_PLATFORMS="cpu")
    assert values["skip"]["reason"] == "JAX_PLATFORMS=cpu excludes the GPU"


# How they are judged.

HEALTHY: dict[str, dict[str, Any]] = {
    "cupy-kernels": {
        "dot": {"side": 4096, "tflops": 51.0, "milliseconds": 2.7, "cold_seconds": 0.3, "wrong_rows": 0},
        "raw_kernel": {"gb_per_s": 2900.0, "milliseconds": 0.3, "cold_seconds": 0.2, "wrong_elements": 0},
        "expression": {"milliseconds": 0.02, "cold_seconds": 0.9, "wrong_elements": 0},
        "fft": {"milliseconds": 0.03, "cold_seconds": 0.2, "error": 3e-7, "round_trip_error": 3e-7},
    },
    "numba-kernel": {"saxpy": {"gb_per_s": 2900.0, "cold_seconds": 0.4, "wrong_elements": 0}},
    "jax-matmul": {
        "backend": {"version": "0.11.0", "platform": "gpu", "devices": 1, "refusal": ""},
        "matmul": {"tflops": 350.0, "cold_seconds": 1.2, "wrong_rows": 0},
    },
}
CHECKS = {"cupy-kernels": CUPY, "numba-kernel": NUMBA, "jax-matmul": JAX}


def taken(workload: str, changes: Any) -> Snapshot:
    plan = {"workloads": {workload: workload}, "gpus": [0], "left_alone": {}, "kind": "busy"}
    reply = Reply("ok", machine._merged(HEALTHY[workload], changes))
    return replace(machine.load("h100"), measured={"plan": Reply("ok", plan), f"{workload}:gpu0": reply})


def found(workload: str, changes: dict[str, Any]) -> list[Finding]:
    return list(CHECKS[workload].judge(Facts(taken(workload, changes))))


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("cupy-kernels", "CuPy: 51.0 TFLOP/s in fp32, compiles in at most 0.9 s, all results correct"),
        ("numba-kernel", "Numba: 2900 GB/s, first run including compilation 0.4 s, all elements correct"),
        ("jax-matmul", "JAX: 350 TFLOP/s, first run including compilation 1.2 s, all rows correct"),
    ],
)
def test_a_healthy_framework(workload: str, words: str) -> None:
    assert found(workload, {}) == []
    assert CHECKS[workload].summary(Facts(taken(workload, {}))) == words


@each(
    ("workload", "changes", "problem", "words"),
    [
        ("cupy-kernels", {"dot": {"wrong_rows": 2}}, "gpu-computes-wrong", "GPU 0: CuPy matrix product: 2 wrong rows"),
        ("cupy-kernels", {"fft": {"error": None}}, "gpu-computes-wrong", "GPU 0: CuPy Fourier transform: not finite"),
        ("cupy-kernels", {"dot": {"tflops": 20.0}}, "gpu-slower-than-expected", "GPU 0: CuPy matrix product 20 TFLOP/s"),
        ("numba-kernel", {"saxpy": {"wrong_elements": 4}}, "gpu-computes-wrong", "GPU 0: Numba saxpy: 4 wrong elements"),
        ("jax-matmul", {"matmul": {"wrong_rows": 1}}, "gpu-computes-wrong", "GPU 0: JAX matrix product: 1 wrong rows"),
        (
            "jax-matmul",
            {"backend": {"platform": "cpu", "refusal": "Unknown backend"}},
            "jax-sees-no-gpu",
            "JAX 0.11.0 continues on the CPU: Unknown backend",
        ),
    ],
)
def test_a_framework_that_is_not(workload: str, changes: dict[str, Any], problem: str, words: str) -> None:
    (finding,) = found(workload, changes)
    assert finding.problem.id == problem
    assert finding.message.startswith(words)


@pytest.mark.parametrize(("workload", "part"), [("cupy-kernels", "fft"), ("numba-kernel", "saxpy"), ("jax-matmul", "matmul")])
def test_what_is_missing_is_no_pass(workload: str, part: str) -> None:
    snapshot = taken(workload, {})
    reply = snapshot.measured[f"{workload}:gpu0"]
    rest = {name: value for name, value in reply.value.items() if name != part} | {"prints": "..."}
    measured = {**snapshot.measured, f"{workload}:gpu0": replace(reply, status="error", value=rest)}
    with pytest.raises(Skip):
        list(CHECKS[workload].judge(Facts(replace(snapshot, measured=measured))))
