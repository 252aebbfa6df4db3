"""The CUDA driver API: whether it initialises, its devices, and whether a context can be created on each."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from gpudoctor.facts.driver_library import DriverLibrary, possible_count
from gpudoctor.facts.guarded import Guarded
from gpudoctor.facts.nvml_values import MIB, answered, bus_id
from gpudoctor.model import Skip, Unavailable


class Cuda(DriverLibrary):
    """The answers of libcuda. Without a successful initialisation, only the library, its version and the init code are known."""

    TOPIC, NAME, FILE = "cuda", "CUDA", "libcuda"

    @property
    def library_version(self) -> str | None:
        """The driver release in the file name of libcuda; None if it has no release, as under WSL."""
        return release_of(self.library or "")

    @property
    def is_compat(self) -> bool:
        """Whether libcuda comes from a forward-compatibility package (cuda-compat)."""
        return is_compat(self.library or "")

    @cached_property
    def maps(self) -> tuple[str, ...]:
        """NVIDIA libraries loaded in the process that initialised CUDA."""
        return tuple(self._loaded("maps"))

    @cached_property
    def driver_version(self) -> tuple[int, int]:
        """The newest CUDA version that libcuda supports: (13, 0)."""
        version = int(checked(self._loaded("driver_version"), "cuDriverGetVersion"))
        return version // 1000, version % 1000 // 10

    @cached_property
    def init_code(self) -> int:
        return int(checked(self._loaded("init"), "cuInit"))

    @cached_property
    def init_error(self) -> str:
        """The init code's name, such as CUDA_ERROR_NO_DEVICE; CUDA_SUCCESS if initialisation worked."""
        return self.error_name(self.init_code)

    @cached_property
    def count(self) -> int:
        if self.init_code:
            raise Unavailable(f"CUDA does not initialise: {self.init_error} ({self.init_code})")
        return possible_count(int(checked(self._loaded("count"), "cuDeviceGetCount")), "cuDeviceGetCount")

    @cached_property
    def devices(self) -> tuple[CudaDevice, ...]:
        if self.count == 0:
            return ()
        return tuple(CudaDevice(ordinal, answers, self) for ordinal, answers in enumerate(self._replies.value("cuda:devices")))

    @cached_property
    def by_bus_id(self) -> dict[str, CudaDevice]:
        """Bus id -> device; if a GPU has several MIG devices, the first."""
        return {device.bus_id: device for device in reversed(self.devices)}

    def error_name(self, code: int) -> str:
        """The name that libcuda gives to one of its codes."""
        names = self._loaded("names").get(str(code), ("", ""))
        return names[0] or f"CUDA error {code}"

    def context(self, ordinal: int) -> dict[str, Any]:
        """The raw answer of one device to the request for a context."""
        answer: dict[str, Any] = self._replies.value(f"cuda:context{ordinal}")
        return answer


class CudaDevice(Guarded):
    """A device as CUDA numbers it, which can differ from NVML's order."""

    def __init__(self, ordinal: int, answers: dict[str, Any], cuda: Cuda) -> None:
        self.ordinal = ordinal
        self._answers = answers
        self._cuda = cuda

    def _get(self, name: str) -> Any:
        answer = self._answers.get(name, self._answers["handle"])
        return checked(answer, f"CUDA device {self.ordinal}: {name}")

    @cached_property
    def name(self) -> str:
        return str(self._get("name"))

    @cached_property
    def uuid(self) -> str:
        """GPU-... as in NVML; MIG-... for a MIG device."""
        return str(self._get("uuid"))

    @cached_property
    def bus_id(self) -> str:
        return bus_id(self._get("bus_id"))

    @cached_property
    def compute_capability(self) -> tuple[int, int]:
        major, minor = self._get("compute_capability")
        return int(checked(major, "compute capability")), int(checked(minor, "compute capability"))

    @cached_property
    def memory_mib(self) -> int:
        return int(self._get("memory")) // MIB

    @cached_property
    def attributes(self) -> dict[str, int]:
        """The attributes that libcuda knows, named as in probes/cuda.py: multiprocessors, l2_bytes ..."""
        return {name: value for name, value in self._get("attributes").items() if isinstance(value, int)}

    @cached_property
    def context_skipped(self) -> str | None:
        """Why no context was requested, such as another process using the GPU."""
        return self._cuda.context(self.ordinal).get("skipped")

    @cached_property
    def context_code(self) -> int | None:
        """The code returned by the request for a context; None if it was skipped."""
        if self.context_skipped:
            return None
        answer = self._cuda.context(self.ordinal)["code"]
        return int(checked(answer, f"cuDevicePrimaryCtxRetain on device {self.ordinal}"))

    @cached_property
    def context_error(self) -> str | None:
        """The name of the context code, such as CUDA_ERROR_DEVICE_UNAVAILABLE; None if it succeeded or was skipped."""
        if not self.context_code:
            return None
        return self._cuda.context(self.ordinal).get("name") or f"CUDA error {self.context_code}"

    @cached_property
    def context_seconds(self) -> float | None:
        return self._cuda.context(self.ordinal).get("seconds")


def release_of(path: str) -> str | None:
    """The driver release in the file name of a libcuda: 580.159.04."""
    match = re.search(r"/libcuda\.so\.(\d{2,}\.\d+(?:\.\d+)?)$", path)
    return match[1] if match else None


def is_compat(path: str) -> bool:
    """Whether a library belongs to a forward-compatibility package (cuda-compat)."""
    return re.search(r"/(cuda-)?compat/", path) is not None


def checked(answer: Any, what: str) -> Any:
    """The answer if it is a value; otherwise raises Unavailable with the reason."""
    if answered(answer):
        return answer
    if answer.get("absent"):
        raise Unavailable(f"{what}: not in this libcuda", Skip.UNSUPPORTED)
    if "error" in answer:
        raise Unavailable(f"{what}: {answer.get('name') or 'CUDA error'} ({answer['error']})")
    raise Unavailable(f"{what} killed its process")
