"""Copies between host and GPU, both ways at once; what arrives is compared with what was sent."""

from __future__ import annotations

import contextlib
import ctypes
import time
from typing import Any, Dict

from gpudoctor.worker.measuring.driver import Driver, Module, fill, wrong_words

BYTES = 256 << 20
BATCH = 8
THERE, BACK = 1, 2  # seeds of the patterns


class Copies:
    """Four buffers: a pattern on the host and one on the GPU, and where each arrives."""

    def __init__(self, driver: Driver, module: Module) -> None:
        self.driver = driver
        self.module = module
        self.up, self.down = driver.stream(), driver.stream()
        self.size = ctypes.c_size_t(BYTES)

    def sustained(self, seconds: float) -> Dict[str, Any]:
        driver = self.driver
        with contextlib.ExitStack() as buffers:
            sent, returned = (buffers.enter_context(driver.pinned(BYTES)) for _ in range(2))
            arrived, kept = (buffers.enter_context(driver.buffer(BYTES)) for _ in range(2))
            fill(self.module, arrived, BYTES, THERE)
            driver("cuMemcpyDtoH_v2", sent, arrived, self.size)
            fill(self.module, kept, BYTES, BACK)
            return self._copied(seconds, sent, arrived, kept, returned)

    def _copied(self, seconds: float, sent: Any, arrived: Any, kept: Any, returned: Any) -> Dict[str, Any]:
        driver = self.driver
        count, wrong, spent, end = 0, 0, 0.0, time.monotonic() + seconds
        while time.monotonic() < end:
            fill(self.module, arrived, BYTES, 0)
            driver.synchronize()
            began = time.monotonic()
            for _ in range(BATCH):
                driver("cuMemcpyHtoDAsync_v2", arrived, sent, self.size, self.up)
                driver("cuMemcpyDtoHAsync_v2", returned, kept, self.size, self.down)
            driver.wait(self.up)
            driver.wait(self.down)
            spent += time.monotonic() - began
            count += BATCH
            wrong += wrong_words(driver, self.module, arrived, BYTES, THERE)
            driver("cuMemcpyHtoD_v2", arrived, returned, self.size)
            wrong += wrong_words(driver, self.module, arrived, BYTES, BACK)
        speed = 2.0 * BYTES * count / spent / 1e9 if spent else 0.0
        return {"copies": 2 * count, "gb_per_s": speed, "wrong_words": wrong}
