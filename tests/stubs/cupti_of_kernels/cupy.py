# mypy: ignore-errors
from cupti import cupti

number = 0


def kernel(name):
    """Launched and run at once."""
    global number
    number += 1
    now = cupti.get_timestamp()
    link = {"correlation_id": number}
    cupti.record(cupti.ActivityKind.RUNTIME, now, cbid=211, thread_id=7, **link)
    shape = {"grid_x": 8, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1, "block_z": 1, "registers_per_thread": 32}
    where = {"device_id": 0, "stream_id": 7, "static_shared_memory": 1024, "dynamic_shared_memory": 0}
    cupti.record(cupti.ActivityKind.CONCURRENT_KERNEL, now + 60_000, name=name, **shape, **where, **link)


def copy(size):
    global number
    number += 1
    now = cupti.get_timestamp()
    cupti.record(cupti.ActivityKind.RUNTIME, now, cbid=41, thread_id=7, correlation_id=number)
    kinds = {"copy_kind": 1, "src_kind": 1, "dst_kind": 3}
    cupti.record(cupti.ActivityKind.MEMCPY, now + 60_000, bytes=size, device_id=0, stream_id=7, correlation_id=number, **kinds)
