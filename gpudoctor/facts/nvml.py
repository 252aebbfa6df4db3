"""NVML: whether it answers, what it reports about the driver, and its GPUs."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from gpudoctor.facts.driver_library import DriverLibrary, possible_count
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.nvml_values import P2P, TOPOLOGY, answered, checked, error_name
from gpudoctor.model import Unavailable

Pair = tuple[int, int]
LIBRARY_NOT_FOUND = 12


class Nvml(DriverLibrary):
    """The answers of NVML. Without a successful initialisation, only the library and the init code are known."""

    TOPIC, NAME, FILE = "nvml", "NVML", "NVML"

    @cached_property
    def init_code(self) -> int:
        return int(checked(self._loaded("init"), "nvmlInit"))

    @cached_property
    def init_error(self) -> str:
        """The init code's name, such as NVML_ERROR_DRIVER_NOT_LOADED; NVML_SUCCESS if initialisation worked."""
        return error_name(self.init_code)

    def _initialised(self, name: str) -> Any:
        if self.init_code:
            raise Unavailable(f"NVML does not initialise: {self.init_error} ({self.init_code})")
        return self._loaded(name)

    def _system(self, name: str) -> Any:
        return checked(self._initialised("system").get(name, {"absent": True}), name)

    @cached_property
    def driver_version(self) -> str:
        return str(self._system("DriverVersion"))

    @cached_property
    def cuda_version(self) -> tuple[int, int] | None:
        """The newest CUDA version that this driver supports; None if NVML finds no libcuda to ask."""
        system = self._initialised("system")
        name = "CudaDriverVersion_v2" if answered(system.get("CudaDriverVersion_v2")) else "CudaDriverVersion"
        if system.get(name) == {"error": LIBRARY_NOT_FOUND}:
            return None
        version = int(self._system(name))
        return version // 1000, version % 1000 // 10

    @cached_property
    def count(self) -> int:
        return possible_count(int(checked(self._initialised("count"), "nvmlDeviceGetCount")), "nvmlDeviceGetCount")

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(Gpu(index, self._replies) for index in range(self.count))

    @cached_property
    def reachable(self) -> dict[str, Gpu]:
        """Bus id -> GPU, for GPUs with an NVML handle: the driver works with them."""
        return {_address(gpu): gpu for gpu in self.gpus if gpu.is_reachable}

    def reaches(self, address: str) -> bool:
        """Whether the driver works with the GPU at this PCI address; also False if NVML itself does not answer."""
        try:
            return address in self.reachable
        except Unavailable:
            return False

    @cached_property
    def reaches_any(self) -> bool:
        """Whether the driver works with any GPU; also False if NVML itself does not answer."""
        try:
            return bool(self.reachable)
        except Unavailable:
            return False

    @cached_property
    def p2p(self) -> dict[Pair, str]:
        """(reader, read) -> "ok", "chipset not supported", "gpu not supported" ...; empty with one GPU."""
        return self._peers("p2p", P2P)

    @cached_property
    def topology(self) -> dict[Pair, str]:
        """(lower, higher) -> what the path between them crosses: "single switch", "host bridge", "node", "system" ..."""
        return self._peers("topology", TOPOLOGY)

    def _peers(self, name: str, words: dict[int, str]) -> dict[Pair, str]:
        if self.count < 2:
            return {}
        peers = self._replies.value("nvml:peers")
        if name not in peers:
            raise Unavailable(f"{name} of the GPUs is unknown")
        answers = peers[name]
        return {_pair(pair): words.get(code, f"unknown ({code})") for pair, code in answers.items() if answered(code)}


def _address(gpu: Gpu) -> str:
    """Its bus id; some texts, such as torch's collect_env, list GPUs without it."""
    try:
        return gpu.bus_id
    except Unavailable:
        return f"GPU {gpu.index}"


def _pair(text: str) -> Pair:
    one, other = text.split(",")
    return int(one), int(other)
