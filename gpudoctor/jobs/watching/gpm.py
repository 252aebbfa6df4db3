"""GPU performance monitoring (GPM) of Hopper and newer: which part of the multiprocessors worked, and at what.

The GPU counts all the time; what is read is the difference of two samples, so that nothing between them is missed.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
"""

from __future__ import annotations

import math
import time
from ctypes import byref
from typing import Any

LEAST_SECONDS = 0.1  # between two samples
# NVML's number -> our name; percentages but for the rates, which are MiB/s.
METRICS = {
    1: "graphics",
    2: "sm",
    3: "occupancy",
    5: "tensor",
    10: "dram",
    11: "fp64",
    12: "fp32",
    13: "fp16",
    20: "pcie_tx_mib_s",
    21: "pcie_rx_mib_s",
    60: "nvlink_rx_mib_s",
    61: "nvlink_tx_mib_s",
}


class Gpm:
    """why_not: the reason why this GPU, or this driver, gives no metrics."""

    def __init__(self, nvml: Any, handle: Any, has_mig: bool) -> None:
        self.why_not = ""
        self._nvml = nvml
        self._handle = handle
        self._at = self.began = 0.0
        self.longest = 0.0  # seconds between two samples
        self._samples: list[Any] = []
        try:
            if has_mig:
                self.why_not = "GPM counts no GPU in MIG mode as a whole"
            elif not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self.why_not = "this GPU has no GPM (Hopper and newer have)"
            else:
                self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
                self._question = nvml.c_nvmlGpmMetricsGet_t()
                self._take()
        except (nvml.NVMLError, AttributeError) as refusal:
            self.why_not = f"GPM is not available: {refusal}"

    @property
    def works(self) -> bool:
        return not self.why_not

    def read(self) -> dict[str, float]:
        """The means since the last call; empty if that was just now."""
        if self.why_not or time.monotonic() - self._at < LEAST_SECONDS:
            return {}
        try:
            self._take()
            return self._difference()
        except self._nvml.NVMLError as refusal:
            self.why_not = f"GPM stopped: {refusal}"
            return {}

    @property
    def at(self) -> float:
        """When the last sample was taken."""
        return self._at

    @property
    def seconds(self) -> float:
        """Over which the last answer is the mean."""
        return self._at - self.began

    def _take(self) -> None:
        """The newest sample is the last."""
        self.began = self._at
        self.longest = max(self.longest, time.monotonic() - self._at if self._at else 0.0)
        self._samples.reverse()
        self._nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        self._at = time.monotonic()

    def _difference(self) -> dict[str, float]:
        asked = self._question
        asked.version, asked.numMetrics = self._nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        asked.sample1, asked.sample2 = self._samples
        for place, number in enumerate(METRICS):
            asked.metrics[place].metricId = number
        code = self._nvml._nvmlGetFunctionPointer("nvmlGpmMetricsGet")(byref(asked))
        self._nvml._nvmlCheckReturn(code)
        answers = zip(METRICS.values(), asked.metrics, strict=False)
        return {name: got.value for name, got in answers if not got.nvmlReturn and math.isfinite(got.value)}
