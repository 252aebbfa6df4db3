"""TensorFlow: a matrix product on this GPU."""

from __future__ import annotations

import os
from typing import Any, List

from gpudoctor.worker.measuring import clock, matrices
from gpudoctor.worker.measuring.bench import Bench, Workload, summary
from gpudoctor.worker.reply import Skip
from gpudoctor.worker.workloads.jax_matmul import visible

SIDE = 4096
REPEATS, CALLS = 5, 10


def run(bench: Bench) -> None:
    """Stores "backend": {"version", "devices", "refusal"}, and if there is a GPU "matmul": {"tflops", "spread", "milliseconds",
    "cold_seconds", "wrong_rows", "on"}."""
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # otherwise it takes all of the memory
    os.environ["CUDA_VISIBLE_DEVICES"] = visible(bench.gpu)  # TensorFlow uses every GPU that it sees
    import tensorflow

    if not tensorflow.test.is_built_with_cuda():
        raise Skip("this build of TensorFlow is for the CPU only", Skip.NOT_INSTALLED)
    bench.step("listing the GPUs")
    devices = tensorflow.config.list_physical_devices("GPU")
    refusal = "" if devices else "TensorFlow lists no GPU"
    bench.keep("backend", version=tensorflow.__version__, devices=len(devices), refusal=refusal)
    if devices:
        measure(bench, tensorflow, "/GPU:0")


def measure(bench: Bench, tensorflow: Any, device: str) -> None:
    one, other = matrices.whole_numbers(SIDE)
    with tensorflow.device(device), bench.section("matmul") as values:
        left, right = tensorflow.constant(one), tensorflow.constant(other)
        start = clock.now()
        product = tensorflow.linalg.matmul(left, right)
        rows = product.numpy()
        values["cold_seconds"] = round(clock.now() - start, 4)
        found = summary(_seconds_each(tensorflow, left, right))
        values.update(tflops=2 * SIDE**3 / found["median"] / 1e12, spread=found["spread"], milliseconds=found["median"] * 1e3)
        values["wrong_rows"] = matrices.wrong_rows(one, other, rows)
        values["on"] = [str(product.device)]


def _seconds_each(tensorflow: Any, left: Any, right: Any) -> List[float]:
    """For one product: many before the host waits for an element of the last, several times."""
    seconds = []
    for _ in range(REPEATS + 1):
        start = clock.now()
        for _ in range(CALLS):
            product = tensorflow.linalg.matmul(left, right)
        product[0, 0].numpy()
        seconds.append((clock.now() - start) / CALLS)
    return seconds[1:]


WORKLOAD = Workload(run, runtime="tensorflow", typical_seconds=4, seconds=90)
