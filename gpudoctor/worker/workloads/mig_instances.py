"""Every MIG instance that is not in use, each in a separate process, since CUDA gives a process only one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Dict, Iterator, List, NamedTuple

if __name__ == "__main__":  # run as a script in the process of an instance, whose folder could hide other modules
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.path.dirname(os.path.dirname(os.path.dirname(here)))] + [path for path in sys.path if path != here]

from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload, read
from gpudoctor.worker.measuring.driver import Driver
from gpudoctor.worker.reply import Skip
from gpudoctor.worker.workloads.memory_pattern import PATTERNS, WORD, Chunk, tested

VISIBLE = "CUDA_VISIBLE_DEVICES"
MOST_INSTANCES = 64  # of one GPU, in NVML
SECONDS = 20  # of one instance
BYTES = 1 << 30
SHARE_OF_FREE = 4
PATTERN = PATTERNS[-1]
ENABLED = 1


class Instance(NamedTuple):
    """gpu: NVML's index. users: the processes on it."""

    gpu: int
    uuid: str
    name: str
    users: int


def run(bench: Bench) -> None:
    """For each instance, by its UUID: {"gpu", "device", "multiprocessors", "bytes", "gb_per_s", "wrong_words", "wrong"}, or only
    {"gpu", "device", "error"} or {"gpu", "device", "left_alone": why}."""
    found = list(instances())
    if not found:
        raise Skip("no GPU has MIG instances")
    if os.environ.get(VISIBLE):
        raise Skip("%s selects what may be used here: other instances are left alone" % VISIBLE)
    for number, instance in enumerate(found):
        about = {"gpu": instance.gpu, "device": instance.name}
        if instance.users:
            bench.keep(instance.uuid, left_alone="in use", **about)
            continue
        bench.step("MIG instance %d" % number)
        bench.keep(instance.uuid, **about, **_in_process(instance.uuid, "%s.mig%d" % (bench._file, number)))


def instances() -> Iterator[Instance]:
    """Those of all GPUs; NVML lists them although CUDA gives only one to a process."""
    import pynvml

    pynvml.nvmlInit()
    try:
        for gpu in range(pynvml.nvmlDeviceGetCount()):
            yield from _of(pynvml, gpu)
    finally:
        pynvml.nvmlShutdown()


def _of(nvml: Any, gpu: int) -> Iterator[Instance]:
    handle = nvml.nvmlDeviceGetHandleByIndex(gpu)
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != ENABLED:
            return
        most = min(nvml.nvmlDeviceGetMaxMigDeviceCount(handle), MOST_INSTANCES)
    except nvml.NVMLError:  # a GPU without MIG
        return
    for number in range(most):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:  # a place without an instance
            continue
        users = len(nvml.nvmlDeviceGetComputeRunningProcesses(instance))
        yield Instance(gpu, nvml.nvmlDeviceGetUUID(instance), nvml.nvmlDeviceGetName(instance), users)


def _in_process(uuid: str, file: str) -> Dict[str, Any]:
    command = [sys.executable, os.path.abspath(__file__), file]
    try:
        done = subprocess.run(
            command, env={**os.environ, VISIBLE: uuid}, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"error": "not finished after %d s" % SECONDS}
    values = read(file).values.get("memory")
    if values is None or done.returncode:
        lines: List[str] = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return {"error": lines[-1][:300] if lines else "exit code %d" % done.returncode}
    return values


def one(file: str) -> None:
    """In the process of an instance, the only device that it sees."""
    driver = Driver(0)
    size = min(BYTES, driver.memory()[0] // SHARE_OF_FREE) // WORD * WORD
    chunk = Chunk(driver.allocate(size), size, 0)
    module = driver.module()
    tested(driver, module, PATTERN, [chunk])
    values = tested(driver, module, PATTERN, [chunk])
    Bench(file, [0]).keep("memory", bytes=size, multiprocessors=driver.attribute("multiprocessors"), **values)


WORKLOAD = Workload(run, scope=ONCE, seconds=180, typical_seconds=1)

if __name__ == "__main__":
    one(sys.argv[1])
