"""NVML's field numbers of what a long load watches: nvml.h of NVML 13 (nvidia-ml-py 13.615.71), NVML_FI_DEV_*.

By number, so that they do not depend on the version of the binding. https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

from typing import Dict, Tuple

# Of the GPU. ECC errors are volatile ones: since the driver was loaded.
OF_GPU: Dict[str, int] = {
    "memory_celsius": 82,
    "ecc_corrected": 3,
    "ecc_uncorrected": 4,
    "ecc_corrected_l1": 7,
    "ecc_uncorrected_l1": 8,
    "ecc_corrected_l2": 9,
    "ecc_uncorrected_l2": 10,
    "ecc_corrected_dram": 11,
    "ecc_uncorrected_dram": 12,
    "ecc_corrected_registers": 13,
    "ecc_uncorrected_registers": 14,
    "pcie_replays": 94,
    "pcie_recoveries": 169,
    "pcie_corrected": 173,
    "pcie_non_fatal": 179,
    "pcie_fatal": 180,
    "rows_corrected": 142,
    "rows_uncorrected": 143,
    "rows_pending": 144,
    "rows_failed": 145,
}
# Of each NVLink: up to NVLink 4, and since NVLink 5.
OF_LINK: Dict[str, int] = {"nvlink_replay": 161, "nvlink_recovery": 162, "nvlink_crc": 163, "nvlink_state": 165}
OF_NEW_LINK: Dict[str, int] = {
    "nvlink_malformed_packet": 206,
    "nvlink_buffer_overrun": 207,
    "nvlink_receive": 208,
    "nvlink_link_integrity": 211,
    "nvlink_recovered": 213,
    "nvlink_failed_recovery": 214,
    "nvlink_effective": 219,
    "nvlink_effective_ber": 220,
    "nvlink_symbol": 221,
    "nvlink_symbol_ber": 222,
}
RATES = ("nvlink_effective_ber", "nvlink_symbol_ber")
GAUGES = ("memory_celsius", *RATES)
# What a person sees as errors while the load runs. NVLinks correct CRC and symbol errors by design.
ERRORS = (
    "ecc_corrected",
    "ecc_uncorrected",
    "pcie_replays",
    "pcie_non_fatal",
    "pcie_fatal",
    "rows_corrected",
    "rows_uncorrected",
    "nvlink_replay",
    "nvlink_recovery",
    "nvlink_recovered",
    "nvlink_failed_recovery",
)

# Where the field is not known: a getter, and its further arguments. For a link, its number comes first.
GETTERS: Dict[str, Tuple[str, Tuple[int, ...]]] = {
    "ecc_corrected": ("nvmlDeviceGetTotalEccErrors", (0, 0)),
    "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", (1, 0)),
    "ecc_corrected_dram": ("nvmlDeviceGetMemoryErrorCounter", (0, 0, 2)),
    "ecc_uncorrected_dram": ("nvmlDeviceGetMemoryErrorCounter", (1, 0, 2)),
    "ecc_corrected_sram": ("nvmlDeviceGetMemoryErrorCounter", (0, 0, 7)),
    "ecc_uncorrected_sram": ("nvmlDeviceGetMemoryErrorCounter", (1, 0, 7)),
    "pcie_replays": ("nvmlDeviceGetPcieReplayCounter", ()),
}
LINK_GETTERS: Dict[str, Tuple[str, Tuple[int, ...]]] = {
    "nvlink_replay": ("nvmlDeviceGetNvLinkErrorCounter", (0,)),
    "nvlink_recovery": ("nvmlDeviceGetNvLinkErrorCounter", (1,)),
    "nvlink_crc": ("nvmlDeviceGetNvLinkErrorCounter", (2,)),
    "nvlink_state": ("nvmlDeviceGetNvLinkState", ()),
}
MOST_LINKS = 36


def bit_error_rate(encoded: int) -> float:
    """NVML's encoding: a mantissa of 4 bits, then a negative power of ten in 8 bits. No errors are 15e-254."""
    return (encoded >> 8 & 0xF) * 10.0 ** -(encoded & 0xFF)
