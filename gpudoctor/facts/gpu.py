"""One GPU as NVML describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from gpudoctor.facts import shared
from gpudoctor.facts.gpu_records import (
    Fabric,
    Licence,
    MigDevice,
    Mode,
    NvLink,
    Process,
    RemappedRows,
    RetiredPages,
    SramErrors,
    Utilization,
)
from gpudoctor.facts.guarded import WRONG, Guarded
from gpudoctor.facts.known import known, supported
from gpudoctor.facts.nvml_values import (
    ARCHITECTURES,
    BRANDS,
    COMPUTE_MODES,
    MIB,
    POWER_SOURCES,
    RECOVERY_ACTIONS,
    SELECTED_BY,
    VIRTUALIZATION,
    answered,
    bits,
    bus_id,
    checked,
)
from gpudoctor.facts.replies import Replies
from gpudoctor.model import Unavailable

T = TypeVar("T")

THROTTLE_COUNTERS = {
    "power cap": "SW_POWER_CAP",
    "sync boost": "SYNC_BOOST",
    "software thermal": "SW_THERM_SLOWDOWN",
    "hardware thermal": "HW_THERM_SLOWDOWN",
    "power brake": "HW_POWER_BRAKE_SLOWDOWN",
}


def watts(milliwatts: int) -> float:
    return milliwatts / 1000


def mib(size: int) -> int:
    return size // MIB


def word(names: dict[int, str]) -> Callable[[int], str]:
    return lambda code: names.get(code, f"unknown ({code})")


class Answer(Generic[T]):
    """A fact parsed, once, from the answer of one getter; given several getters, from the first that answers."""

    def __init__(self, parse: Callable[[Any], T], *paths: str) -> None:
        self.parse = parse
        self.paths = paths

    def __set_name__(self, owner: type[Gpu], name: str) -> None:
        self.name = name

    def __get__(self, gpu: Gpu, owner: type[Gpu]) -> T:
        answer = gpu.get(*self.paths)
        try:
            value = gpu.__dict__[self.name] = self.parse(answer)
            return value
        except WRONG as failure:
            raise Unavailable(f"GPU {gpu.index}: {self.paths[-1]} has an unexpected form ({failure})"[:300]) from failure


class Gpu(Guarded):
    """One GPU. A fact that NVML did not provide raises Unavailable, with the kind that matches NVML's code."""

    def __init__(self, index: int, replies: Replies) -> None:
        self.index = index
        self._replies = replies

    name = Answer(str, "Name")
    uuid = Answer(str, "UUID")
    bus_id = Answer(bus_id, "PciInfo.busId")
    device_id = Answer(lambda both: int(both) >> 16, "PciInfo.pciDeviceId")
    minor_number = Answer(int, "MinorNumber")
    brand = Answer(word(BRANDS), "Brand")
    architecture = Answer(word(ARCHITECTURES), "Architecture")
    compute_capability: Answer[tuple[int, int]] = Answer(lambda pair: (int(pair[0]), int(pair[1])), "CudaComputeCapability")
    cores = Answer(int, "NumGpuCores")
    vbios = Answer(str, "VbiosVersion")
    inforom = Answer(str, "InforomImageVersion")
    gsp_firmware = Answer(str, "GspFirmwareVersion")
    gsp_mode: Answer[tuple[bool, bool]] = Answer(
        lambda pair: (bool(pair[0]), bool(pair[1])), "GspFirmwareMode"
    )  # now, by default
    memory_unrepairable = Answer(bool, "UnrepairableMemoryFlag_v1")
    virtualization_mode = Answer(word(VIRTUALIZATION), "VirtualizationMode")
    display_active = Answer(bool, "DisplayActive")

    temperature_c = Answer(int, "Temperature.gpu", "TemperatureV.gpu")
    temperature_margin_c = Answer(int, "MarginTemperature")  # degrees below the maximum operating temperature
    memory_temperature_c = Answer(int, "FieldValues.MEMORY_TEMP")
    power_watts = Answer(watts, "PowerUsage")
    power_limit_watts = Answer(watts, "PowerManagementLimit")
    default_power_limit_watts = Answer(watts, "PowerManagementDefaultLimit")
    enforced_power_limit_watts = Answer(watts, "EnforcedPowerLimit", "PowerManagementLimit")
    minimum_power_limit_watts = Answer(watts, "PowerManagementLimitConstraints.0")
    maximum_power_limit_watts = Answer(watts, "PowerManagementLimitConstraints.1")
    power_source = Answer(word(POWER_SOURCES), "PowerSource")
    target_temperature_c = Answer(int, "TemperatureThreshold.target")  # at which the driver begins to lower the clocks
    highest_target_temperature_c = Answer(int, "TemperatureThreshold.highest_target")
    performance_state = Answer(int, "PerformanceState")
    clock_reasons = Answer(int, "CurrentClocksEventReasons", "CurrentClocksThrottleReasons")

    pcie_generation = Answer(int, "CurrPcieLinkGeneration")
    pcie_width = Answer(int, "CurrPcieLinkWidth")
    maximum_pcie_generation = Answer(int, "MaxPcieLinkGeneration")  # the limit of GPU and slot together
    maximum_pcie_width = Answer(int, "MaxPcieLinkWidth")
    pcie_replays = Answer(int, "PcieReplayCounter", "FieldValues.PCIE_REPLAY_COUNTER")

    persistence_mode = Answer(bool, "PersistenceMode")
    compute_mode = Answer(word(COMPUTE_MODES), "ComputeMode")
    mig_mode = Answer(Mode.of, "MigMode")
    ecc_mode = Answer(Mode.of, "EccMode")
    ecc_volatile_corrected = Answer(int, "TotalEccErrors.volatile_corrected")
    ecc_volatile_uncorrected = Answer(int, "TotalEccErrors.volatile_uncorrected")
    ecc_aggregate_corrected = Answer(int, "TotalEccErrors.aggregate_corrected")
    ecc_aggregate_uncorrected = Answer(int, "TotalEccErrors.aggregate_uncorrected")
    sram_status = Answer(SramErrors.of, "SramEccErrorStatus")
    remapped_rows = Answer(RemappedRows.of, "RemappedRows")
    row_remapper_histogram: Answer[dict[str, int]] = Answer(dict, "RowRemapperHistogram")  # max, high, partial, low, none
    retired_pages_pending = Answer(bool, "RetiredPagesPendingStatus")
    channel_repair_pending = Answer(bool, "RepairStatus.0")
    tpc_repair_pending = Answer(bool, "RepairStatus.1")
    recovery_action = Answer(word(RECOVERY_ACTIONS), "FieldValues.GET_GPU_RECOVERY_ACTION")
    fabric = Answer(Fabric.of, "GpuFabricInfoV")

    memory_total_mib = Answer(mib, "MemoryInfo.total")
    memory_free_mib = Answer(mib, "MemoryInfo.free")
    memory_used_mib = Answer(mib, "MemoryInfo_v2.used", "MemoryInfo.used")  # the second version excludes the driver's reserve
    bar1_total_mib = Answer(mib, "BAR1MemoryInfo.bar1Total")
    numa_node = Answer(int, "NumaNodeId")
    cpu_affinity = Answer(bits, "CpuAffinity.words")

    @cached_property
    def handle_error(self) -> int | None:
        """The code with which NVML refused a handle: 15 for a lost GPU."""
        code = self._answers.get("handle_error")
        return code if isinstance(code, int) else None

    @property
    def selector(self) -> str:
        """Its bus id or, where a text does not show it, its index: both select it in nvidia-smi -i, as a text may have done."""
        return known(lambda: self.bus_id, str(self._answers.get(SELECTED_BY, self.index)))

    @property
    def is_reachable(self) -> bool:
        return "handle_error" not in self._answers

    @cached_property
    def _answers(self) -> dict[str, Any]:
        answers: dict[str, Any] = self._replies.value(f"nvml:gpu{self.index}")
        return answers

    @cached_property
    def refusals(self) -> dict[str, int]:
        """Getter -> the code with which NVML refused to answer it."""
        answers = {name: answer for name, answer in self._answers.items() if isinstance(answer, dict) and "error" in answer}
        return {name: answer["error"] for name, answer in answers.items()}

    def get(self, *paths: str) -> Any:
        """The raw answer of a getter such as "PowerUsage", or one part: "ClockInfo.sm"; given several, the first that exists."""
        *others, last = paths
        for path in others:
            try:
                return self._get(path)
            except Unavailable:
                continue
        return self._get(last)

    def _get(self, path: str) -> Any:
        """The value at a path; stops at the first part that has no answer."""
        answer: Any = self._answers
        if "handle_error" in answer:
            error = answer["handle_error"]
            checked({"error": error} if isinstance(error, int) else error, f"GPU {self.index}")
        for name in path.split("."):
            if isinstance(answer, dict) and name not in answer:
                raise Unavailable(f"GPU {self.index}: {path} is unknown")
            answer = answer[int(name)] if isinstance(answer, list) else answer[name]
            if not answered(answer):
                checked(answer, f"GPU {self.index}: {path}")
        return answer

    def temperature_limit_c(self, kind: str) -> int:
        """The temperature at which "shutdown", "slowdown", "max_operating" or "memory" begins.

        Newer GPUs report the first three only as distances from the maximum ("T.Limit" in nvidia-smi).
        """
        try:
            return int(self.get(f"TemperatureThreshold.{kind}"))
        except Unavailable:
            if kind == "memory":
                raise
        name = {"max_operating": "GPU_MAX"}.get(kind, kind.upper())
        margin = int(self.get(f"FieldValues.TEMPERATURE_{name}_TLIMIT"))
        return self.temperature_c + self.temperature_margin_c - margin

    @cached_property
    def clocks_mhz(self) -> dict[str, int]:
        """The graphics, sm, memory and video clocks that NVML reports."""
        return self._known("ClockInfo")

    @cached_property
    def maximum_clocks_mhz(self) -> dict[str, int]:
        return self._known("MaxClockInfo")

    @cached_property
    def application_clocks_mhz(self) -> dict[str, int]:
        return self._known("ApplicationsClock")

    @cached_property
    def throttled_seconds(self) -> dict[str, float]:
        """How long the clocks have been throttled since the driver was loaded, by reason."""
        names = {reason: f"CLOCKS_EVENT_REASON_{name}" for reason, name in THROTTLE_COUNTERS.items()}
        nanoseconds = self._known("FieldValues", tuple(names.values()))
        return {reason: nanoseconds[name] / 1e9 for reason, name in names.items() if name in nanoseconds}

    def _known(self, getter: str, names: tuple[str, ...] = ()) -> dict[str, int]:
        """The available parts of an answer; Unavailable if all are missing."""
        parts = self.get(getter)
        names = names or tuple(parts)
        known = {name: parts[name] for name in names if answered(parts.get(name, {"absent": True}))}
        if not known:
            self.get(f"{getter}.{names[0]}")
        return known

    @cached_property
    def utilization(self) -> Utilization:
        return Utilization(self.get("UtilizationRates.gpu"), self.get("UtilizationRates.memory"))

    @cached_property
    def retired_pages(self) -> RetiredPages:
        return RetiredPages(*(len(self.get(f"RetiredPages.{cause}")) for cause in ("single_bit", "double_bit")))

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """The processes on this GPU, each once; in a container NVML shows only what the container can see."""
        found = {entry["pid"]: Process.of(entry, "compute") for entry in self.get("ComputeRunningProcesses")}
        for kind, getter in (("mps", "MPSComputeRunningProcesses"), ("graphics", "GraphicsRunningProcesses")):
            entries = self._answers.get(getter, ())
            for entry in entries if isinstance(entries, list) else ():
                found.setdefault(entry["pid"], Process.of(entry, kind))
        return tuple(found.values())

    @cached_property
    def nvlinks(self) -> tuple[NvLink, ...]:
        """The links of this GPU, in use or not; Unavailable if this machine can see no links of it."""
        return shared.once(self.get("NvLinks"), _links)

    @cached_property
    def active_nvlinks(self) -> list[NvLink]:
        return [link for link in self.nvlinks if link.active]

    @property
    def is_in_mig_mode(self) -> bool:
        return supported(lambda: self.mig_mode.current, False)

    @cached_property
    def mig_devices(self) -> tuple[MigDevice, ...]:
        return tuple(MigDevice.of(answers) for answers in self.get("MigDevices"))

    @cached_property
    def mig_uuids(self) -> tuple[str, ...]:
        """Of its MIG devices, of which a text may show nothing else."""
        return tuple(checked(answers.get("UUID", ""), "UUID of a MIG device") for answers in self.get("MigDevices"))

    @cached_property
    def vgpu_licences(self) -> tuple[Licence, ...]:
        """The vGPU licences that this GPU can have; empty if it is not a vGPU."""
        answer = self.get("GridLicensableFeatures")
        return tuple(Licence.of(feature) for feature in answer["gridLicensableFeatures"][: answer["licensableFeaturesCount"]])


def _links(answers: Mapping[str, Any]) -> tuple[NvLink, ...]:
    return tuple(NvLink.of(link, each) for link, each in answers.items())
