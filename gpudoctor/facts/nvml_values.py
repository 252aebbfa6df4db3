"""Names for NVML's numbers (nvml.h, https://github.com/NVIDIA/go-nvml/blob/main/gen/nvml/nvml.h)."""

from __future__ import annotations

from typing import Any

from gpudoctor.model import Skip, Unavailable

SELECTED_BY = "SelectedBy"  # the index by which a text's command chose its only GPU
MIB = 1 << 20

ERRORS = dict(
    enumerate(
        # NVML_ERROR_...
        """
        SUCCESS UNINITIALIZED INVALID_ARGUMENT NOT_SUPPORTED NO_PERMISSION ALREADY_INITIALIZED NOT_FOUND INSUFFICIENT_SIZE
        INSUFFICIENT_POWER DRIVER_NOT_LOADED TIMEOUT IRQ_ISSUE LIBRARY_NOT_FOUND FUNCTION_NOT_FOUND CORRUPTED_INFOROM
        GPU_IS_LOST RESET_REQUIRED OPERATING_SYSTEM LIB_RM_VERSION_MISMATCH IN_USE MEMORY NO_DATA VGPU_ECC_NOT_SUPPORTED
        INSUFFICIENT_RESOURCES FREQ_NOT_SUPPORTED ARGUMENT_VERSION_MISMATCH DEPRECATED NOT_READY GPU_NOT_FOUND
        INVALID_STATE RESET_TYPE_NOT_SUPPORTED
        """.split()  # noqa: SIM905
    )
) | {999: "UNKNOWN"}
NOT_PERMITTED = 4
# Not supported, no such function (the driver is older), no ECC in this vGPU, a structure that the driver does not know,
# withdrawn: none of them is a fault.
UNSUPPORTED = (3, 13, 22, 25, 26)

ARCHITECTURES = dict(
    enumerate("Kepler Maxwell Pascal Volta Turing Ampere Ada Hopper Blackwell".split(), start=2)  # noqa: SIM905
) | {13: "Rubin"}
BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA Cloud Gaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
POWER_SOURCES = {0: "mains", 1: "battery", 2: "undersized"}
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
RECOVERY_ACTIONS = {
    0: "none",
    1: "gpu-reset",
    2: "node-reboot",
    3: "drain-p2p",
    4: "drain-and-reset",
    5: "recover-imex-domain",
    6: "bus-reset",
    7: "system-reboot",
}
P2P = {
    0: "ok",
    1: "chipset not supported",
    2: "gpu not supported",
    3: "topology not supported",
    4: "disabled by registry key",
    5: "not supported",
    6: "unknown",
}
TOPOLOGY = {0: "internal", 10: "single switch", 20: "switches", 30: "host bridge", 40: "node", 50: "system"}
FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
FABRIC_SUMMARIES = {0: None, 1: "healthy", 2: "unhealthy", 3: "limited capacity"}
NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
NVLINK_REMOTES = {0: "gpu", 1: "npu", 2: "switch"}

# The health mask: shift, width, and the meaning of bad values.
FABRIC_HEALTH: tuple[tuple[int, int, dict[int, str]], ...] = (
    (0, 0x3, {1: "bandwidth degraded"}),
    (2, 0x3, {1: "route recovery in progress"}),
    (4, 0x3, {1: "route unhealthy"}),
    (6, 0x3, {1: "access timeout recovery in progress"}),
    (
        8,
        0xF,
        {
            2: "wrong system GUID",
            3: "wrong chassis serial number",
            4: "no partition",
            5: "too few NVLinks",
            6: "wrong GPU firmware",
            7: "wrong GPU location",
            8: "wrong GPU state",
        },
    ),
    (12, 0x3, {2: "no partition assigned"}),
    (14, 0x3, {2: "fabric manager disconnected"}),
)

LINK_ERROR_FIELDS = {
    "replay": "NVLINK_ERROR_DL_REPLAY",
    "recovery": "NVLINK_ERROR_DL_RECOVERY",
    "crc": "NVLINK_ERROR_DL_CRC",
    "malformed_packet": "NVLINK_COUNT_MALFORMED_PACKET_ERRORS",
    "buffer_overrun": "NVLINK_COUNT_BUFFER_OVERRUN_ERRORS",
    "receive": "NVLINK_COUNT_RCV_ERRORS",
    "remote_receive": "NVLINK_COUNT_RCV_REMOTE_ERRORS",
    "link_integrity": "NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "failed_recovery": "NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "effective": "NVLINK_COUNT_EFFECTIVE_ERRORS",
}


def error_name(code: int) -> str:
    """The name of a code in nvml.h: NVML_ERROR_..."""
    if code == 0:
        return "NVML_SUCCESS"
    return f"NVML_ERROR_{ERRORS[code]}" if code in ERRORS else f"NVML error {code}"


def answered(answer: Any) -> bool:
    """Whether an answer is a value rather than an error."""
    return not isinstance(answer, dict) or answer.keys().isdisjoint(("error", "absent", "raised", "died"))


def checked(answer: Any, what: str) -> Any:
    """The answer if it is a value; otherwise raises Unavailable with the question, the reason and its kind."""
    if answered(answer):
        return answer
    if answer.get("absent"):
        raise Unavailable(f"{what}: not known to nvidia-ml-py", Skip.UNSUPPORTED)
    if "error" not in answer:
        raise Unavailable(f"{what}: {answer.get('raised', 'killed its process')}")
    code = answer["error"]
    kind = Skip.UNSUPPORTED if code in UNSUPPORTED else Skip.NOT_PERMITTED if code == NOT_PERMITTED else Skip.NO_ANSWER
    raise Unavailable(f"{what}: {error_name(code)} ({code})", kind)


def bus_id(address: str) -> str:
    """A PCI address with a domain of four digits, as in sysfs: "00000000:00:06.0" is "0000:00:06.0"."""
    domain, _, rest = address.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def bits(words: list[int]) -> tuple[int, ...]:
    """The numbers of the bits that are set in 64-bit words."""
    return tuple(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)
