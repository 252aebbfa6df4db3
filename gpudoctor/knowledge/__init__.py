"""Facts about GPUs, drivers, CUDA, error codes and wheels: YAML tables with a source on every row.

Each table is read once, on first use. Every function is pure; None means that the tables have no answer.
"""

from __future__ import annotations

from gpudoctor.knowledge.cuda import (
    architecture,
    branch,
    cuda_of_branch,
    forward_compatible,
    host_compiler,
    last_branch,
    maximum_gcc,
    minimum_driver,
    shipped_driver,
    toolkits,
)
from gpudoctor.knowledge.errors import cuda_error, nvml_error
from gpudoctor.knowledge.gpus import (
    architecture_of_chip,
    architecture_of_device,
    gpu_by_device_id,
    gpu_by_name,
    gpus_by_device_id,
)
from gpudoctor.knowledge.health import clock_reasons, fabric_health, mode, nvlink_gb_per_s, pcie_gb_per_s
from gpudoctor.knowledge.nvlink5 import nvlink5_error
from gpudoctor.knowledge.performance import collective_share, nvlink_shares, operations_per_clock, pcie_share, reachable_share
from gpudoctor.knowledge.rm import rm_failure, rm_status, rm_step
from gpudoctor.knowledge.wheels import packages, runs_on, torch_architectures, torch_release, variant, variant_for_driver
from gpudoctor.knowledge.xids import sxid, xid, xid_action

__all__ = [
    "architecture",
    "architecture_of_chip",
    "architecture_of_device",
    "branch",
    "clock_reasons",
    "collective_share",
    "cuda_error",
    "cuda_of_branch",
    "fabric_health",
    "forward_compatible",
    "gpu_by_device_id",
    "gpu_by_name",
    "gpus_by_device_id",
    "host_compiler",
    "last_branch",
    "maximum_gcc",
    "minimum_driver",
    "mode",
    "nvlink5_error",
    "nvlink_gb_per_s",
    "nvlink_shares",
    "nvml_error",
    "operations_per_clock",
    "packages",
    "pcie_gb_per_s",
    "pcie_share",
    "reachable_share",
    "rm_failure",
    "rm_status",
    "rm_step",
    "runs_on",
    "shipped_driver",
    "sxid",
    "toolkits",
    "torch_architectures",
    "torch_release",
    "variant",
    "variant_for_driver",
    "xid",
    "xid_action",
]
