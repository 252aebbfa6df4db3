"""Serial numbers, which are asked for only by name: of the machine, as far as this user may read it, and of each GPU."""

from __future__ import annotations

from typing import Any, Dict, Iterator

from gpudoctor.worker.probes.machine import Answer, Machine, believable


def ask(machine: Machine) -> Iterator[Answer]:
    yield machine.ask("serials", lambda: _serials(machine))


def _serials(machine: Machine) -> Dict[str, str]:
    """{"machine": ..., "gpu0": ...}; without those that do not exist or may not be read."""
    found = {"machine": str(machine.call(lambda: machine.read("/sys/class/dmi/id/product_serial")).value or "").strip()}
    if machine.root == "/":
        found.update(machine.call(_of_gpus).value or {})
    return {name: serial for name, serial in found.items() if serial}


def _of_gpus() -> Dict[str, str]:
    import pynvml

    pynvml.nvmlInit()
    try:
        count: Any = believable(pynvml.nvmlDeviceGetCount())
        return {"gpu%d" % index: _of_gpu(pynvml, index) for index in range(count if isinstance(count, int) else 0)}
    finally:
        pynvml.nvmlShutdown()


def _of_gpu(pynvml: Any, index: int) -> str:
    """ "" for boards without a serial number, such as GeForce."""
    try:
        serial = pynvml.nvmlDeviceGetSerial(pynvml.nvmlDeviceGetHandleByIndex(index))
        return serial.decode() if isinstance(serial, bytes) else str(serial)
    except pynvml.NVMLError:
        return ""
