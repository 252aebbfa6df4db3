"""Each board's own records (InfoROM), read from their memory and compared with their checksums."""

from __future__ import annotations

from typing import Any

from gpudoctor.worker.measuring.bench import Bench, Workload
from gpudoctor.worker.measuring.driver import Driver
from gpudoctor.worker.reply import Skip

SUCCESS, UNSUPPORTED, CORRUPTED = 0, (3, 13), 14  # NVML's codes; 13: the driver is older than the function
NOT_PERMITTED = 4


def run(bench: Bench) -> None:
    """checksums: {"code": 0, or 14 if they are wrong}."""
    import pynvml

    address = Driver(bench.gpu).bus_id()
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(address.encode())
        with bench.section("checksums") as values:
            values["code"] = _code(pynvml, handle)
            if values["code"] in UNSUPPORTED:
                raise Skip("this board or driver does not validate its InfoROM", Skip.UNSUPPORTED)
            if values["code"] == NOT_PERMITTED:
                raise Skip("NVML validates the InfoROM for root only", Skip.NOT_PERMITTED)
    finally:
        pynvml.nvmlShutdown()


def _code(pynvml: Any, handle: Any) -> int:
    try:
        pynvml.nvmlDeviceValidateInforom(handle)
    except pynvml.NVMLError as failure:
        return int(failure.value)
    return SUCCESS


WORKLOAD = Workload(run, seconds=30, typical_seconds=0.3)
