# mypy: ignore-errors
import os
import time
import types
from enum import IntEnum


class ActivityKind(IntEnum):
    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10


class CallbackDomain(IntEnum):
    DRIVER_API = 1
    RUNTIME_API = 2


SHIFT = 10**15  # another clock than time.time_ns
NAMES = {(2, 211): "cudaLaunchKernel_v7000", (2, 41): "cudaMemcpyAsync_v3020"}
enabled, records, calls = set(), [], []


def get_timestamp():
    return time.time_ns() - SHIFT


def activity_register_callbacks(requested, completed):
    if os.environ.get("CUPTI_IS_TAKEN"):
        raise RuntimeError("ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)")
    assert requested()[0] > 0
    calls.append(completed)


def activity_enable(kind):
    enabled.add(kind)


def activity_disable(kind):
    enabled.discard(kind)


def activity_flush_all(flag):
    found, records[:] = [*records], []
    calls[0](found)


def get_callback_name(domain, number):
    return NAMES[(int(domain), number)]


def record(kind, start, **fields):
    if kind in enabled:
        records.append(types.SimpleNamespace(kind=kind, start=start, end=start + 50_000, **fields))
