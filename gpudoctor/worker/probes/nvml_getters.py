"""The table of NVML queries for nvml.py. Getters missing from a driver, GPU or nvidia-ml-py do no harm."""

from __future__ import annotations

from typing import Dict, Tuple

SYSTEM = ("DriverVersion", "NVMLVersion", "CudaDriverVersion", "CudaDriverVersion_v2", "DriverBranch")

# Without "nvmlDeviceGet"; each takes only the handle. Left out: Serial and PlatformInfo (serial numbers),
# InforomConfigurationChecksum (0.07 s on an H100) and PcieThroughput (0.02 s).
GETTERS = """
    Name UUID Brand Architecture CudaComputeCapability PciInfo MinorNumber BoardPartNumber VbiosVersion
    InforomImageVersion ModuleId BusType NumGpuCores MemoryBusWidth MultiGpuBoard CurrPcieLinkGeneration
    CurrPcieLinkWidth MaxPcieLinkGeneration MaxPcieLinkWidth GpuMaxPcieLinkGeneration PcieSpeed PcieReplayCounter
    PersistenceMode ComputeMode MigMode MaxMigDeviceCount EccMode DefaultEccMode MemoryInfo BAR1MemoryInfo
    UtilizationRates PerformanceState CurrentClocksEventReasons CurrentClocksThrottleReasons
    SupportedClocksEventReasons SupportedClocksThrottleReasons PowerUsage PowerManagementLimit
    PowerManagementLimitConstraints PowerManagementDefaultLimit EnforcedPowerLimit PowerSource
    TotalEnergyConsumption MarginTemperature NumFans FanSpeed RemappedRows RowRemapperHistogram
    RetiredPagesPendingStatus RepairStatus VirtualizationMode HostVgpuMode GridLicensableFeatures DisplayActive
    DriverModel GpuOperationMode GspFirmwareVersion GspFirmwareMode NumaNodeId AddressingMode C2cModeInfoV
    LastBBXFlushTime UnrepairableMemoryFlag_v1
""".split()  # noqa: SIM905

CLOCKS: Dict[str, Tuple[int, ...]] = {"graphics": (0,), "sm": (1,), "memory": (2,), "video": (3,)}
AFFINITY_WORDS = 16  # of 64 CPUs each

# Called once for each row of further arguments: getter -> label -> arguments.
FAMILIES: Dict[str, Dict[str, Tuple[int, ...]]] = {
    "Temperature": {"gpu": (0,)},
    "TemperatureV": {"gpu": (0,)},
    "TemperatureThreshold": {
        "shutdown": (0,),
        "slowdown": (1,),
        "memory": (2,),
        "max_operating": (3,),
        "target": (5,),
        "highest_target": (6,),
    },
    "ClockInfo": CLOCKS,
    "MaxClockInfo": CLOCKS,
    "ApplicationsClock": {"graphics": (0,), "memory": (2,)},
    "DefaultApplicationsClock": {"graphics": (0,), "memory": (2,)},
    "TotalEccErrors": {
        "volatile_corrected": (0, 0),
        "volatile_uncorrected": (1, 0),
        "aggregate_corrected": (0, 1),
        "aggregate_uncorrected": (1, 1),
    },
    "RetiredPages": {"single_bit": (0,), "double_bit": (1,)},
    "CpuAffinity": {"words": (AFFINITY_WORDS,)},
    "MemoryAffinity": {"words": (1, 0)},
}

PROCESSES = ("ComputeRunningProcesses", "GraphicsRunningProcesses", "MPSComputeRunningProcesses")

# Without "NVML_FI_DEV_"; the second list is queried for each NVLink.
FIELDS = """
    MEMORY_TEMP GET_GPU_RECOVERY_ACTION POWER_INSTANT POWER_AVERAGE
    TEMPERATURE_SHUTDOWN_TLIMIT TEMPERATURE_SLOWDOWN_TLIMIT TEMPERATURE_MEM_MAX_TLIMIT TEMPERATURE_GPU_MAX_TLIMIT
    PCIE_REPLAY_COUNTER PCIE_REPLAY_ROLLOVER_COUNTER PCIE_L0_TO_RECOVERY_COUNTER PCIE_COUNT_CORRECTABLE_ERRORS
    PCIE_COUNT_NAKS_RECEIVED PCIE_COUNT_RECEIVER_ERROR PCIE_COUNT_BAD_TLP PCIE_COUNT_NAKS_SENT PCIE_COUNT_BAD_DLLP
    PCIE_COUNT_NON_FATAL_ERROR PCIE_COUNT_FATAL_ERROR PCIE_COUNT_UNSUPPORTED_REQ PCIE_COUNT_LCRC_ERROR
    PCIE_COUNT_LANE_ERROR NVLINK_LINK_COUNT NVLINK_SPEED_MBPS_COMMON NVSWITCH_CONNECTED_LINK_COUNT C2C_LINK_COUNT
    CLOCKS_EVENT_REASON_SW_POWER_CAP CLOCKS_EVENT_REASON_SYNC_BOOST CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN
    CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN
""".split()  # noqa: SIM905
LINK_FIELDS = """
    NVLINK_GET_SPEED NVLINK_ERROR_DL_REPLAY NVLINK_ERROR_DL_RECOVERY NVLINK_ERROR_DL_CRC
    NVLINK_COUNT_MALFORMED_PACKET_ERRORS NVLINK_COUNT_BUFFER_OVERRUN_ERRORS NVLINK_COUNT_RCV_ERRORS
    NVLINK_COUNT_RCV_REMOTE_ERRORS NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS
    NVLINK_COUNT_EFFECTIVE_ERRORS
""".split()  # noqa: SIM905

# Of each NVLink since version 5.
NEW_LINK_FIELDS = """
    NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS NVLINK_COUNT_SYMBOL_ERRORS NVLINK_COUNT_EFFECTIVE_BER
    NVLINK_COUNT_SYMBOL_BER
""".split()  # noqa: SIM905
NVLINK_5 = 7  # NVML_NVLINK_VERSION_5_0

# Member of the union by value type. Not 0, double: no field here is one, and an unset field reports 0.
VALUE_TYPES = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}

# Not 3 and 4: since NVLink 4 they count errors that were corrected, which also occur on healthy links.
LINK_ERRORS = {"replay": 0, "recovery": 1, "crc_flit": 2}
