"""Asks the CUDA driver API with ctypes and no framework: initialisation, devices, and whether each gives a context.

The environment (CUDA_VISIBLE_DEVICES and so on) stays as the user set it.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

from gpudoctor.worker.probes.machine import Answer, Machine, believable

LIBRARY = "libcuda.so.1"
SUCCESS = 0
LEFT_ALONE = "gpus-left-alone"  # set in `known`, with the reason, if no GPU memory may be used
MIB = 1 << 20
ENOUGH_MIB = 1024  # a context takes several hundred MiB of GPU memory

# CUdevice_attribute by number.
ATTRIBUTES = {
    "max_threads_per_block": 1,
    "max_shared_memory_per_block": 8,
    "clock_khz": 13,
    "multiprocessors": 16,
    "kernel_timeout": 17,
    "integrated": 18,
    "can_map_host_memory": 19,
    "compute_mode": 20,
    "concurrent_kernels": 31,
    "ecc_enabled": 32,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "async_engines": 40,
    "unified_addressing": 41,
    "compute_capability_major": 75,
    "compute_capability_minor": 76,
    "managed_memory": 83,
    "multi_gpu_board": 84,
    "pageable_memory_access": 88,
    "concurrent_managed_access": 89,
    "cooperative_launch": 95,
    "max_shared_memory_per_block_optin": 97,
    "pageable_memory_uses_host_page_tables": 100,
    "gpu_direct_rdma": 116,
    "dma_buf": 124,
}
MAPPED = re.compile(r"/(lib(cuda|nvidia|nvcuvid|nvoptix|dxcore|d3d12)[^/]*)$")


def ask(machine: Machine) -> Iterator[Answer]:
    """`cuda`, then `cuda:devices`, then `cuda:contextN` for every device."""
    machine.at("cuda", "dlopen " + LIBRARY)
    loaded = machine.call(_load)
    if loaded.status != "ok" or loaded.value["library"] is None:
        yield "cuda", loaded
        return
    cuda = Cuda(machine, loaded.value["library"])
    started = machine.call(cuda.start)
    yield "cuda", started
    count = started.value.get("count") if started.value else None
    if not isinstance(count, int):
        return
    devices = machine.call(lambda: [cuda.device(ordinal) for ordinal in range(count)])
    yield "cuda:devices", devices
    for ordinal, device in enumerate(devices.value or ()):
        yield "cuda:context%d" % ordinal, machine.call(lambda: cuda.context(ordinal, device))  # noqa: B023 (called at once)


def _load() -> Dict[str, Any]:
    import ctypes

    try:
        return {"library": ctypes.CDLL(LIBRARY)}
    except OSError as failure:
        return {"library": None, "load_error": str(failure)}


class Cuda:
    """libcuda, called by name: an answer is a value, {"error": code, "name"}, {"absent": true} or {"died": true}."""

    def __init__(self, machine: Machine, library: Any) -> None:
        self.machine = machine
        self.library = library
        self.question = "cuda"
        self.codes: List[int] = []

    def __call__(self, function: str, *arguments: Any, step: str = "") -> Any:
        """The code that a function returned, or why it was not called."""
        step = step or function
        if step in self.machine.skip:
            return {"died": True}
        found = getattr(self.library, function, None)
        if found is None:
            return {"absent": True}
        self.machine.at(self.question, step)
        code = int(found(*arguments))
        if code not in self.codes:
            self.codes.append(code)
        return code

    def result(self, answer: Any, value: Callable[[], Any]) -> Any:
        """The value that a function has written, if it returned 0."""
        if isinstance(answer, dict):
            return answer
        return value() if answer == SUCCESS else {"error": answer, "name": self.name(answer)[0]}

    def value(self, kind: Any, function: str, *arguments: Any) -> Any:
        """The value that a function writes to its first argument."""
        import ctypes

        result = kind()
        return self.result(self(function, ctypes.byref(result), *arguments), lambda: result.value)

    def text(self, function: str, *arguments: Any, size: int) -> Any:
        """The text that a function writes to its first two arguments, buffer and size."""
        import ctypes

        buffer = ctypes.create_string_buffer(size)
        code = self(function, buffer, ctypes.c_int(size), *arguments)
        return self.result(code, lambda: buffer.value.decode("utf-8", "replace"))

    def start(self) -> Dict[str, Any]:
        """Initialises CUDA; asks for the version first, since that works even if initialisation fails."""
        import ctypes

        version = self.value(ctypes.c_int, "cuDriverGetVersion")
        start = time.monotonic()
        init = self("cuInit", 0)
        seconds = round(time.monotonic() - start, 4)
        count = believable(self.value(ctypes.c_int, "cuDeviceGetCount")) if init == SUCCESS else None
        maps = _mapped()
        return {
            "library": next((path for path in maps if "/libcuda.so" in path), LIBRARY),
            "load_error": "",
            "driver_version": version,
            "init": init,
            "init_seconds": seconds,
            "count": count,
            "names": {str(code): self.name(code) for code in list(self.codes)},
            "maps": maps,
        }

    def name(self, code: int) -> List[str]:
        """A code's name and text, which libcuda knows even before initialisation."""
        return [self._name("cuGetErrorName", code), self._name("cuGetErrorString", code)]

    def _name(self, function: str, code: int) -> str:
        import ctypes

        text = ctypes.c_char_p()
        answer = self(function, ctypes.c_int(code), ctypes.byref(text))
        return (text.value or b"").decode("utf-8", "replace") if answer == SUCCESS else ""

    def device(self, ordinal: int) -> Dict[str, Any]:
        import ctypes

        self.question = "cuda:devices"
        device = self.value(ctypes.c_int, "cuDeviceGet", ctypes.c_int(ordinal))
        if isinstance(device, dict):
            return {"handle": device}
        handle = ctypes.c_int(device)
        name = self.text("cuDeviceGetName", handle, size=256)
        attributes = {
            label: self.value(ctypes.c_int, "cuDeviceGetAttribute", ctypes.c_int(number), handle)
            for label, number in ATTRIBUTES.items()
        }
        return {
            "handle": device,
            "name": name,
            "uuid": self.uuid(handle, " MIG " in str(name)),
            "compute_capability": [attributes["compute_capability_major"], attributes["compute_capability_minor"]],
            "memory": self.value(ctypes.c_size_t, "cuDeviceTotalMem_v2", handle),
            "bus_id": self.text("cuDeviceGetPCIBusId", handle, size=32),
            "attributes": attributes,
        }

    def uuid(self, handle: Any, is_mig: bool) -> Any:
        """GPU-... or MIG-..., as printed by nvidia-smi -L; only the second version of the function knows MIG."""
        import ctypes

        raw = ctypes.create_string_buffer(16)
        answer: Any = {"absent": True}
        for function in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
            answer = self(function, raw, handle)
            if answer != {"absent": True}:
                break
        return self.result(answer, lambda: ("MIG-" if is_mig else "GPU-") + _dashed(raw.raw.hex()))

    def context(self, ordinal: int, device: Dict[str, Any]) -> Dict[str, Any]:
        """Whether the device gives a context; not tried if that could take the last memory from another process."""
        import ctypes

        self.question = "cuda:context%d" % ordinal
        handle = device.get("handle")
        if not isinstance(handle, int):
            return {"skipped": "cuDeviceGet returned no device"}
        alone = self.machine.known.get(LEFT_ALONE)
        busy = alone.value if alone else _busy(self.machine, device)
        if busy:
            return {"skipped": busy}
        context = ctypes.c_void_p()
        start = time.monotonic()
        step = "cuDevicePrimaryCtxRetain on device %d" % ordinal
        code = self("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(handle), step=step)
        answer = {"code": code, "seconds": round(time.monotonic() - start, 4)}
        if code == SUCCESS:
            self.release(handle)
        elif isinstance(code, int):
            answer["name"], answer["text"] = self.name(code)
        return answer

    def release(self, handle: int) -> None:
        import ctypes

        for function in ("cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"):
            if self(function, ctypes.c_int(handle)) != {"absent": True}:
                return


def _dashed(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _mapped() -> List[str]:
    """NVIDIA libraries in this process, after CUDA has loaded what it needs."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if line.count("/")}
    return sorted(path for path in paths if MAPPED.search(path))


def _busy(machine: Machine, device: Dict[str, Any]) -> str:
    """Which processes need this GPU's memory, according to NVML; "" if none, or if there is enough for both."""
    gpu = _nvml_answers(machine, device)
    if gpu is None:
        return ""
    names = ("ComputeRunningProcesses", "MPSComputeRunningProcesses")
    lists = [gpu[name] for name in names if isinstance(gpu.get(name), list)]
    processes = [process for found in lists for process in found if process.get("pid") != os.getpid()]
    free = gpu.get("MemoryInfo", {}).get("free")
    if not processes or free is None or free >= ENOUGH_MIB * MIB:
        return ""
    largest = max(processes, key=lambda process: process.get("usedGpuMemory") or 0)
    held = largest.get("usedGpuMemory")
    return "busy: process %d (%s) holds %s MiB, %d MiB free" % (
        largest["pid"],
        largest.get("name") or "in another container",
        "?" if held is None else held // MIB,
        free // MIB,
    )


def _nvml_answers(machine: Machine, device: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """NVML's answers about the same GPU, found by UUID or bus address (a MIG device has its own UUID)."""
    for question, reply in machine.known.items():
        if not question.startswith("nvml:gpu") or not isinstance(reply.value, dict):
            continue
        pci = reply.value.get("PciInfo", {})
        same_bus = isinstance(device.get("bus_id"), str) and _bus(pci.get("busId")) == _bus(device["bus_id"])
        if reply.value.get("UUID") == device.get("uuid") or same_bus:
            found: Dict[str, Any] = reply.value
            return found
    return None


def _bus(address: Any) -> str:
    """NVML writes the PCI domain with eight digits, CUDA with four."""
    return str(address).lower()[-12:]
