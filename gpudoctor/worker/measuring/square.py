"""The square of a float matrix, compiled by each rung of the toolchain: the compile time and the speed of the kernel.

It is the first kernel of the CUDA-MODE lectures: https://github.com/gpu-mode/lectures/tree/main/lecture_001. Each rung stores
"build": {"cold_seconds", "warm_seconds"}, the time to the first result with empty caches and with the caches that the first build
filled, and "square": {"gb_per_s", "spread", "wrong_elements"}; or, if it does not compile as the user's programs would, "broken":
{"error", "printed", "clean": "works" or its error with clean settings, "unset": what the user has set of them}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import operator
import os
import re
import sys
import traceback
from array import array
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from gpudoctor.worker.measuring import clock, programs, settings
from gpudoctor.worker.measuring.bench import Bench, summary
from gpudoctor.worker.measuring.driver import Driver, Module, Pointer, covering
from gpudoctor.worker.reply import Skip

BYTES = 1 << 29  # of the matrix, if it fits: far larger than any L2 cache
SHARE_OF_FREE = 8  # matrix and result, for two processes, with spare room
COLUMNS = 1024  # each row is 0, 1 ... 1023, so that every square is exact
ROW_BYTES = 4 * COLUMNS
CHUNK_BYTES = 1 << 26
REPEATS, WARM_UP = 15, 2
VECTOR = 16
CAPABILITY = (75, 76)  # the device attributes of the compute capability
CACHES = ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TMPDIR")
AGAIN, CLEAN, WORKS = "again", "clean", "works"
OUT_OF_MEMORY = re.compile("out.of.memory", re.IGNORECASE)

# As in kernels.cu.
SOURCE = """
extern "C" __global__ void square(float4 *__restrict__ to, const float4 *__restrict__ from, unsigned long long vectors) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
#pragma unroll 4
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        const float4 a = from[i];
        to[i] = make_float4(a.x * a.x, a.y * a.y, a.z * a.z, a.w * a.w);
    }
}
"""

Square = Callable[[Any], Any]


def by_driver(bench: Bench, build: Callable[[Driver], Module]) -> None:
    """Measures a rung that builds a module with the kernel `square`, without a framework."""
    prepare(bench)
    other = OtherProgram(bench, lambda: _first_by_driver(Driver(bench.gpu), ROW_BYTES, build))
    bench.step("context")
    driver = Driver(bench.gpu)
    size = size_for(driver.memory()[0])
    with driver.buffer(size) as matrix, driver.buffer(size) as result:
        fill(driver, matrix, size)
        vectors, grid = ctypes.c_uint64(size // VECTOR), covering(size // VECTOR)

        def first() -> Tuple[Module, float]:
            began = clock.now()
            module = build(driver)
            module("square", result, matrix, vectors, grid=grid)
            driver.synchronize()
            return module, clock.now() - began

        built = attempt(bench, first, other)
        if built is None:
            return
        module, cold = built
        bench.keep("build", cold_seconds=cold)
        with bench.section("square") as values:
            times = driver.milliseconds(lambda: module("square", result, matrix, vectors, grid=grid), REPEATS, WARM_UP)
            values.update(speed(times, size), wrong_elements=wrong(driver, result, size))
        bench.step("compiling once more")
        bench.keep("build", cold_seconds=cold, warm_seconds=first()[1])


def _first_by_driver(driver: Driver, size: int, build: Callable[[Driver], Module]) -> float:
    with driver.buffer(size) as matrix, driver.buffer(size) as result:
        fill(driver, matrix, size)
        build(driver)("square", result, matrix, ctypes.c_uint64(size // VECTOR), grid=covering(size // VECTOR))
        driver.synchronize()
    return 0.0


def by_torch(bench: Bench, build: Callable[[Any], Square]) -> None:
    """Measures a rung that builds a function of a tensor."""
    prepare(bench)
    torch = cuda_torch()

    def first(matrix: Any) -> Tuple[Square, float]:
        began = clock.now()
        square = build(torch)
        square(matrix)
        torch.cuda.synchronize()
        return square, clock.now() - began

    other = OtherProgram(bench, lambda: first(ramp(torch, bench.gpu))[1])
    bench.step("context")
    matrix = ramp(torch, bench.gpu)
    built = attempt(bench, lambda: first(matrix), other)
    if built is None:
        return
    square, cold = built
    bench.keep("build", cold_seconds=cold)
    with bench.section("square") as values:
        values.update(measured(torch, square, matrix))
    bench.step("compiling once more")
    warm = other.seconds()
    if warm is not None:
        bench.keep("build", cold_seconds=cold, warm_seconds=warm)


class OtherProgram:
    """A process forked before any CUDA call, which waits for its turn: to be the next program with the same kernel, or to try it
    with clean settings."""

    def __init__(self, bench: Bench, work: Callable[[], float]) -> None:
        turn, self._turn = os.pipe()
        self._answer, answer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._turn)
                how = os.read(turn, 100).decode()  # empty if it is not needed
                if how:
                    os.write(answer, json.dumps(_clean(bench, work) if how == CLEAN else {"seconds": work()}).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.close(turn)
        os.close(answer)

    def seconds(self) -> Optional[float]:
        """The time to its first result with the caches that are filled now."""
        return self._ask(AGAIN).get("seconds")

    def with_clean_settings(self) -> Dict[str, Any]:
        """{"clean": "works" or its error, "unset": the user's settings that it did without}."""
        return self._ask(CLEAN)

    def _ask(self, how: str) -> Dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):  # it was killed
            os.write(self._turn, how.encode())
            with open(self._answer, "rb") as opened:
                data = opened.read()
            os.waitpid(self._pid, 0)
            answer: Dict[str, Any] = json.loads(data)
            return answer
        return {}


def _clean(bench: Bench, work: Callable[[], float]) -> Dict[str, Any]:
    unset = settings.clean(bench.folder, *CACHES)
    try:
        work()
    except Skip:
        return {}
    except Exception as failure:
        return {"clean": programs.essence("%s: %s" % (type(failure).__name__, failure)), "unset": unset}
    return {"clean": WORKS, "unset": unset}


def prepare(bench: Bench) -> None:
    """The settings of the user's own programs, with an empty folder in each cache."""
    settings.as_user(bench._file, *CACHES)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # more would be separate processes, which do not survive a fork
    os.chdir(bench.folder)


def attempt(bench: Bench, first: Callable[[], Any], other: Optional[OtherProgram] = None, step: str = "compiling") -> Any:
    """The result of `first`; None if it fails, which is stored as "broken" with everything printed meanwhile.

    other: tries it with clean settings then.
    """
    bench.step(step)
    printed = programs.Printed()
    try:
        return first()
    except Skip:
        raise
    except Exception as failure:
        if OUT_OF_MEMORY.search(str(failure)):
            raise
        error = "%s: %s" % (type(failure).__name__, failure)
        broken = {"error": programs.essence(error), "printed": programs.essence(printed.text())}
        bench.keep("broken", **broken)
        traceback.print_exc()
    if other:
        bench.step("compiling with clean settings")
        bench.keep("broken", **broken, **other.with_clean_settings())
    return None


def size_for(free: int) -> int:
    return min(BYTES, free // SHARE_OF_FREE) // ROW_BYTES * ROW_BYTES


def speed(milliseconds: List[float], size: int) -> Dict[str, float]:
    """The speed of reading and writing `size` bytes."""
    found = summary([2 * size / each / 1e6 for each in milliseconds])
    return {"gb_per_s": found["median"], "spread": found["spread"]}


def architecture(driver: Driver) -> str:
    """The GPU's compute capability as compilers write it: 90."""
    parts = []
    for attribute in CAPABILITY:
        value = ctypes.c_int()
        driver("cuDeviceGetAttribute", ctypes.byref(value), attribute, driver.device)
        parts.append(str(value.value))
    return "".join(parts)


def fill(driver: Driver, pointer: Pointer, size: int) -> None:
    """Copies from the host, so that no other kernel has to be compiled."""
    for offset, data in chunks(size, range(COLUMNS)):
        driver.put(Pointer(pointer.value + offset), data)


def wrong(driver: Driver, pointer: Pointer, size: int) -> int:
    """How many elements are not the square."""
    count = 0
    for offset, expected in chunks(size, (i * i for i in range(COLUMNS))):
        found = driver.bytes_from(pointer, len(expected), offset)
        if found != expected:
            count += sum(map(operator.ne, memoryview(found).cast("I"), memoryview(expected).cast("I")))
    return count


def chunks(size: int, row: Any) -> Iterator[Tuple[int, bytes]]:
    """(offset, bytes) of a matrix whose rows are equal."""
    data = array("f", row).tobytes() * (CHUNK_BYTES // ROW_BYTES)
    for offset in range(0, size, CHUNK_BYTES):
        yield offset, data[: size - offset]


def cuda_torch() -> Any:
    import torch

    if torch.version.cuda is None:
        raise Skip("this PyTorch was built without CUDA", Skip.NOT_INSTALLED)
    return torch


def ramp(torch: Any, gpu: int) -> Any:
    torch.cuda.set_device(gpu)
    rows = size_for(torch.cuda.mem_get_info()[0]) // ROW_BYTES
    matrix = torch.arange(COLUMNS, dtype=torch.float32, device="cuda").repeat(rows, 1)
    torch.cuda.synchronize()
    return matrix


def measured(torch: Any, square: Square, matrix: Any) -> Dict[str, Any]:
    """{"gb_per_s", "spread", "wrong_elements"} of a function of a tensor."""
    for _ in range(WARM_UP):
        result = square(matrix)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        result = square(matrix)
        mark.record()
    torch.cuda.synchronize()
    times = [marks[number].elapsed_time(marks[number + 1]) for number in range(REPEATS)]
    size = matrix.numel() * matrix.element_size()
    return dict(speed(times, size), wrong_elements=wrong_in(torch, result))


def wrong_in(torch: Any, result: Any) -> int:
    expected = torch.tensor([float(i * i) for i in range(COLUMNS)], dtype=torch.float32, device=result.device)
    return int((result != expected).sum().item())
