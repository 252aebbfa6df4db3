"""JAX: a jitted matrix product on this GPU."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from typing import Any, List

from gpudoctor.worker.measuring import clock, matrices
from gpudoctor.worker.measuring.bench import Bench, Workload, summary
from gpudoctor.worker.reply import Skip

SIDE = 4096
REPEATS, CALLS = 5, 10
PLUGIN = ("jax-cuda", "jax-rocm")


def run(bench: Bench) -> None:
    """Stores "backend": {"version", "platform", "devices", "refusal"}, and if there is a GPU "matmul": {"tflops", "spread",
    "milliseconds", "cold_seconds" (compiled and run), "wrong_rows", "on"}."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # otherwise it takes three quarters of the memory
    os.environ["CUDA_VISIBLE_DEVICES"] = visible(bench.gpu)  # JAX uses every GPU that it sees
    import jax

    with contextlib.suppress(AttributeError):  # older versions of JAX
        jax.config.update("jax_enable_compilation_cache", False)
    bench.step("starting the backend")
    try:
        devices = jax.devices("gpu")
    except RuntimeError as refusal:
        why_not(jax)
        bench.keep("backend", version=jax.__version__, platform=jax.default_backend(), devices=0, refusal=str(refusal))
        return
    bench.keep("backend", version=jax.__version__, platform=devices[0].platform, devices=len(devices), refusal="")
    one, other = matrices.whole_numbers(SIDE)
    with bench.section("matmul") as values:
        left, right = (jax.device_put(matrix, devices[0]) for matrix in (one, other))
        multiply = jax.jit(jax.numpy.matmul)
        start = clock.now()
        product = multiply(left, right).block_until_ready()
        values["cold_seconds"] = round(clock.now() - start, 4)
        found = summary(seconds_each(multiply, left, right))
        values.update(tflops=2 * SIDE**3 / found["median"] / 1e12, spread=found["spread"], milliseconds=found["median"] * 1e3)
        values["wrong_rows"] = matrices.wrong_rows(one, other, jax.device_get(product))
        values["on"] = [str(device) for device in product.devices()]


def visible(ordinal: int) -> str:
    """The value of CUDA_VISIBLE_DEVICES for this GPU alone."""
    listed = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return listed[ordinal] if ordinal < len(listed) else str(ordinal)


def why_not(jax: Any) -> None:
    """Raises Skip if JAX is not meant to use a GPU."""
    wanted = jax.config.jax_platforms or ""
    if wanted and not {"cuda", "gpu", "rocm"} & set(wanted.split(",")):
        raise Skip("JAX_PLATFORMS=%s excludes the GPU" % wanted, Skip.UNSUPPORTED)
    names = [(distribution.metadata["Name"] or "").lower() for distribution in importlib.metadata.distributions()]
    if not any(name.startswith(PLUGIN) for name in names):
        raise Skip("JAX is installed without its CUDA plugin", Skip.NOT_INSTALLED)


def seconds_each(multiply: Any, left: Any, right: Any) -> List[float]:
    """For one product: many between two synchronizations, several times."""
    seconds = []
    for _ in range(REPEATS + 1):
        start = clock.now()
        for _ in range(CALLS):
            product = multiply(left, right)
        product.block_until_ready()
        seconds.append((clock.now() - start) / CALLS)
    return seconds[1:]


WORKLOAD = Workload(run, runtime="jax", typical_seconds=5, seconds=90)
