# mypy: ignore-errors
import time
import types

amp = types.SimpleNamespace()
queued = []
state = {"ready": False, "capturing": False}


def _lazy_call(call):
    call() if state["ready"] else queued.append(call)


def init():
    """As the first tensor on the GPU does."""
    for call in queued:
        call()
    state["ready"] = True


def synchronize():
    assert state["ready"]
    assert not state["capturing"], "a capture was broken"


def is_current_stream_capturing():
    return state["capturing"]


def current_device():
    return 0


def get_device_properties(index):
    return types.SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, total_memory=150 << 30)


def memory_stats():
    return {"num_alloc_retries": 0, "allocated_bytes.all.peak": 1 << 30, "reserved_bytes.all.peak": 2 << 30}


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = time.monotonic()

    def query(self):
        return True

    def elapsed_time(self, other):
        return 1000 * (other.at - self.at)
