"""One GPU with only libcuda, through ctypes: memory, kernels from PTX, streams, events and graphs.

API: https://docs.nvidia.com/cuda/cuda-driver-api/
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, Callable, Dict, Iterator, List, Tuple

from gpudoctor.worker.reply import Skip

LIBRARY = "libcuda.so.1"
SUCCESS, OUT_OF_MEMORY, NOT_SUPPORTED, NOT_READY = 0, 2, 801, 600
ATTRIBUTES = {
    "clock_khz": 13,
    "multiprocessors": 16,
    "concurrent_kernels": 31,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "async_engines": 40,
    "memory_pools": 115,
}
THREADS = 512
NON_BLOCKING = 1  # a stream that does not wait for the default stream
LOG_BYTES = 8192
PATTERN = 0x9E3779B97F4A7C15  # odd, so that all words of a pattern differ
JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE = 5, 6

Pointer = ctypes.c_uint64


class CudaError(Exception):
    """A function of libcuda did not return 0."""

    def __init__(self, function: str, code: int, name: str, more: str = "") -> None:
        super().__init__("%s: %s (%d)%s" % (function, name, code, more and ": " + more))
        self.code = code


def kernels() -> str:
    """The PTX of kernels.cu."""
    with open(os.path.join(os.path.dirname(__file__), "kernels.ptx"), encoding="ascii") as file:
        return file.read()


class Driver:
    """libcuda with the context of one GPU, current in this thread."""

    def __init__(self, ordinal: int) -> None:
        self.library = ctypes.CDLL(LIBRARY)
        self("cuInit", 0)
        self.device = ctypes.c_int()
        self("cuDeviceGet", ctypes.byref(self.device), ordinal)
        self.context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.use()

    def __call__(self, function: str, *arguments: Any) -> None:
        """Calls a function; CudaError if it does not return 0, Skip if this libcuda does not have it."""
        code = self.code(function, *arguments)
        if code != SUCCESS:
            raise CudaError(function, code, self.name(code))

    def code(self, function: str, *arguments: Any) -> int:
        try:
            found = getattr(self.library, function)
        except AttributeError:
            raise Skip("this driver has no %s" % function, Skip.UNSUPPORTED) from None
        return int(found(*arguments))

    def name(self, code: int) -> str:
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
        return (text.value or b"CUDA error").decode()

    def use(self) -> None:
        """Makes the GPU's context current in this thread."""
        self("cuCtxSetCurrent", self.context)

    def attribute(self, name: str) -> int:
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), ATTRIBUTES[name], self.device)
        return value.value

    def memory(self) -> Tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> Pointer:
        pointer = Pointer()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, pointer: Pointer) -> None:
        self("cuMemFree_v2", pointer)

    @contextlib.contextmanager
    def buffer(self, size: int) -> Iterator[Pointer]:
        """GPU memory of `size` bytes."""
        pointer = self.allocate(size)
        try:
            yield pointer
        finally:
            self.free(pointer)

    @contextlib.contextmanager
    def pinned(self, size: int) -> Iterator[ctypes.c_void_p]:
        """Page-locked host memory of `size` bytes."""
        pointer = ctypes.c_void_p()
        self("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), 0)
        try:
            yield pointer
        finally:
            self("cuMemFreeHost", pointer)

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        return stream

    def event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self("cuEventCreate", ctypes.byref(event), 0)
        return event

    def synchronize(self) -> None:
        self("cuCtxSynchronize")

    def wait(self, stream: Any = None) -> None:
        self("cuStreamSynchronize", stream)

    def milliseconds(self, work: Callable[[], Any], repeats: int, warm_up: int = 2, stream: Any = None) -> List[float]:
        """How long the GPU took for each of `repeats` calls of `work`, which runs on `stream`."""
        for _ in range(warm_up):
            work()
        marks = [self.event() for _ in range(repeats + 1)]
        self("cuEventRecord", marks[0], stream)
        for mark in marks[1:]:
            work()
            self("cuEventRecord", mark, stream)
        self.synchronize()
        times = [self.elapsed(before, after) for before, after in zip(marks, marks[1:])]
        for mark in marks:
            self("cuEventDestroy_v2", mark)
        return times

    def fitting(self, work: Callable[[], Any], milliseconds: float, most: int = 10, stream: Any = None) -> List[float]:
        """Like `milliseconds`, with as many repeats as fit into this time; at least three, so that a slow link is measured
        too."""
        first = self.milliseconds(work, 1, 1, stream)[0]
        return self.milliseconds(work, max(3, min(most, int(milliseconds / max(first, 1e-3)))), 0, stream)

    def elapsed(self, before: ctypes.c_void_p, after: ctypes.c_void_p) -> float:
        milliseconds = ctypes.c_float()
        self("cuEventElapsedTime", ctypes.byref(milliseconds), before, after)
        return milliseconds.value

    def module(self, image: str = "") -> Module:
        """Loads PTX, or a path to a cubin or fatbin; by default gpudoctor's own kernels."""
        return Module(self, image or kernels())

    def bus_id(self) -> str:
        """The PCI address as in /sys: 0000:1b:00.0."""
        text = ctypes.create_string_buffer(32)
        self("cuDeviceGetPCIBusId", text, len(text), self.device)
        return text.value.decode("ascii").lower()

    def bytes_from(self, pointer: Pointer, size: int, offset: int = 0) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        self("cuMemcpyDtoH_v2", buffer, Pointer(pointer.value + offset), ctypes.c_size_t(size))
        return buffer.raw

    def put(self, pointer: Pointer, data: bytes) -> None:
        self("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(len(data)))

    def blocks(self) -> int:
        """A grid that fills the GPU with THREADS threads per block."""
        return self.attribute("multiprocessors") * (2048 // THREADS)


def covering(vectors: int) -> int:
    """A grid with one thread for each vector: 5 % faster on an H100 than a grid-stride loop."""
    return -(-vectors // THREADS)


class Module:
    """Loaded kernels, launched by name: module("saxpy", y, x, ctypes.c_uint64(n), ctypes.c_float(2))."""

    def __init__(self, driver: Driver, image: str) -> None:
        self.driver = driver
        self.grid = driver.blocks()
        self._functions: Dict[str, ctypes.c_void_p] = {}
        self._module = ctypes.c_void_p()
        if "\n" in image:
            self._load(image.encode("ascii") + b"\0")
        else:
            driver("cuModuleLoad", ctypes.byref(self._module), image.encode())

    def _load(self, ptx: bytes) -> None:
        """Calls cuModuleLoadData; an error includes the message of the driver's compiler."""
        log = ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), LOG_BYTES)
        code = self.driver.code("cuModuleLoadDataEx", ctypes.byref(self._module), ptx, 2, options, values)
        if code != SUCCESS:
            raise CudaError("cuModuleLoadDataEx", code, self.driver.name(code), log.value.decode("utf-8", "replace").strip())

    def function(self, name: str) -> ctypes.c_void_p:
        if name not in self._functions:
            function = ctypes.c_void_p()
            self.driver("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
            self._functions[name] = function
        return self._functions[name]

    def __call__(self, name: str, *arguments: Any, stream: Any = None, grid: int = 0, threads: int = THREADS) -> None:
        """Launches a kernel with ctypes values as arguments; by default with enough blocks to fill the GPU."""
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        size = (grid or self.grid, 1, 1, threads, 1, 1)
        self.driver("cuLaunchKernel", self.function(name), *size, 0, stream, pointers, None)


def errors_found(driver: Driver, module: Module, kernel: str, *arguments: Any) -> Tuple[int, int]:
    """Runs one of the `expect` kernels: how many elements are wrong, and the first of them (all ones if none is)."""
    with driver.buffer(16) as found:
        driver.put(found, (0).to_bytes(8, "little") + b"\xff" * 8)
        module(kernel, *arguments, found)
        data = driver.bytes_from(found, 16)
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")


def fill(module: Module, pointer: Pointer, size: int, seed: int) -> None:
    """Writes a pattern whose words all differ from each other and from those of other seeds."""
    module("fill_pattern", pointer, ctypes.c_uint64(size // 8), ctypes.c_uint64(PATTERN), ctypes.c_uint64(seed))


def wrong_words(driver: Driver, module: Module, pointer: Pointer, size: int, seed: int) -> int:
    """How many 8-byte words differ from the pattern that `fill` writes."""
    values = ctypes.c_uint64(size // 8), ctypes.c_uint64(PATTERN), ctypes.c_uint64(seed)
    return errors_found(driver, module, "expect_pattern", pointer, *values)[0]
