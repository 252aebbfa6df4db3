"""Records the work of the GPU in a Python program without torch: CUPTI's activity records, by cupti-python.

What is written has the form of torch's traces, so that everything after it is the same.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import sys
import threading
import time
from typing import Any, Dict, List

from gpudoctor.worker.tracing import about
from gpudoctor.worker.tracing.notes import note

KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "DRIVER")
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
MEMORY = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed", 6: "Device Static", 7: "Managed Static"}
BUFFER_BYTES, MOST_EVENTS, MOST_SECONDS = 8 << 20, 500000, 120.0
TOO_SHORT = "the program ended in the first %g seconds, before cupti-python records (--after changes that)"
attached: List[Any] = []


def attach(settings: Dict[str, Any]) -> None:
    """Never raises: the program goes on as it would."""
    if attached:
        return
    attached.append(Activity(settings))
    attached[0].start()


def torch_uses_cuda() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())


class Activity:
    """Records from the first import of a library for CUDA on.

    What came in the first `after` seconds counts only if the program ends in them. If torch may be the one that records, nothing
    is recorded before, and nothing at all if torch uses CUDA by then.
    """

    def __init__(self, settings: Dict[str, Any]) -> None:
        self._cupti: Any = None
        self._settings = settings
        self._pid = os.getpid()
        self._events: List[Dict[str, Any]] = []
        self._names: Dict[Any, str] = {}
        self._is_cut = self._has_ended = False
        self._lock = threading.RLock()
        self._saved = threading.Event()
        self._offset_ns = self._began_ns = 0

    def start(self) -> None:
        if "torch" not in self._settings["engines"] and not self._begin():
            return
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.end)
        threading.Thread(target=self._run, name="gpudoctor-activity", daemon=True).start()

    def _begin(self) -> bool:
        try:
            cupti: Any = importlib.import_module("cupti.cupti")

            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)
            self._cupti = cupti
            for name in KINDS:
                cupti.activity_enable(getattr(cupti.ActivityKind, name))
            self._began_ns = time.time_ns()
            self._offset_ns = self._began_ns - int(cupti.get_timestamp())
        except Exception as failure:
            note(self._settings, "cupti-python records nothing: %s: %s" % (type(failure).__name__, failure))
            self._cupti = None
        return self._cupti is not None

    def _run(self) -> None:
        time.sleep(self._settings["after"])
        if self._cupti is not None:
            self._flush()
            with self._lock:
                self._events.clear()
                self._began_ns, self._is_cut = time.time_ns(), False
        elif torch_uses_cuda() or not self._begin():
            self._has_ended = True
            self._saved.set()
            return
        time.sleep(self._settings["seconds"])
        self.end()

    def end(self) -> None:
        """Of the window, or of the program, which waits until all is written."""
        with self._lock:
            is_first, self._has_ended = not self._has_ended, True
        if is_first and os.getpid() == self._pid:
            try:
                if self._cupti is not None:
                    self._finish(time.time_ns())
                elif not torch_uses_cuda():
                    note(self._settings, TOO_SHORT % self._settings["after"])
            except Exception as failure:
                note(self._settings, "cupti-python: %s: %s" % (type(failure).__name__, failure))
            self._saved.set()
        elif os.getpid() == self._pid:
            self._saved.wait(MOST_SECONDS)

    def _finish(self, ended: int) -> None:
        self._flush()
        for name in KINDS:
            self._cupti.activity_disable(getattr(self._cupti.ActivityKind, name))
        self._save(ended)

    def _flush(self) -> None:
        with contextlib.suppress(Exception):
            self._cupti.activity_flush_all(1)

    def _forked(self) -> None:
        """In the child, whose locks may be held by threads that it does not have."""
        self._lock, self._has_ended = threading.RLock(), True

    def _completed(self, activities: Any) -> None:
        """Called by CUPTI with a full buffer, in a thread of CUPTI."""
        with self._lock:
            for one in activities:
                if len(self._events) >= MOST_EVENTS:
                    self._is_cut = True
                    return
                with contextlib.suppress(AttributeError, TypeError, ValueError):
                    self._add(one)

    def _add(self, one: Any) -> None:
        kinds = self._cupti.ActivityKind
        if one.kind == kinds.CONCURRENT_KERNEL:
            args = {"grid": [one.grid_x, one.grid_y, one.grid_z], "block": [one.block_x, one.block_y, one.block_z]}
            args["registers per thread"] = one.registers_per_thread
            args["shared memory"] = one.static_shared_memory + one.dynamic_shared_memory
            self._note("kernel", str(one.name), one, self._on_gpu(one, args))
        elif one.kind == kinds.MEMCPY:
            between = "%s -> %s" % (MEMORY.get(one.src_kind, "Unknown"), MEMORY.get(one.dst_kind, "Unknown"))
            name = "Memcpy %s (%s)" % (COPIES.get(one.copy_kind, "other"), between)
            self._note("gpu_memcpy", name, one, self._on_gpu(one, {"bytes": one.bytes}))
        elif one.kind == kinds.MEMSET:
            self._note("gpu_memset", "Memset", one, self._on_gpu(one, {"bytes": one.bytes}))
        elif one.kind in (kinds.RUNTIME, kinds.DRIVER):
            kind = "cuda_runtime" if one.kind == kinds.RUNTIME else "cuda_driver"
            self._note(kind, self._name(kind, one.cbid), one, {"correlation": one.correlation_id}, int(one.thread_id))

    @staticmethod
    def _on_gpu(one: Any, args: Dict[str, Any]) -> Dict[str, Any]:
        return {"device": one.device_id, "stream": one.stream_id, "correlation": one.correlation_id, **args}

    def _note(self, kind: str, name: str, one: Any, args: Dict[str, Any], thread: int = 0) -> None:
        event = {"ph": "X", "cat": kind, "name": name, "ts": int(one.start), "dur": int(one.end) - int(one.start)}
        self._events.append({**event, "tid": thread, "args": args})

    def _name(self, kind: str, number: int) -> str:
        """Of a function of CUDA: cudaLaunchKernel."""
        if (kind, number) not in self._names:
            domains = self._cupti.CallbackDomain
            domain = domains.RUNTIME_API if kind == "cuda_runtime" else domains.DRIVER_API
            self._names[(kind, number)] = str(self._cupti.get_callback_name(domain, number)).partition("_v")[0]
        return self._names[(kind, number)]

    def _save(self, ended: int) -> None:
        """Times relative to the beginning of the window: a float of the time since 1970 has no nanoseconds."""
        folder, shift = self._settings["folder"], self._offset_ns - self._began_ns
        events = [{**one, "ts": (one["ts"] + shift) / 1000, "dur": one["dur"] / 1000} for one in self._events]
        events = [one for one in events if one["ts"] >= 0]
        path = os.path.join(folder, "trace-%d.json" % self._pid)
        with open(path + ".part", "w") as file:
            json.dump({"schemaVersion": 1, "baseTimeNanoseconds": self._began_ns, "traceEvents": events}, file)
        os.replace(path + ".part", path)
        notes = ["only the first %d records were kept" % MOST_EVENTS] if self._is_cut else []
        value = {"pid": self._pid, "state": "saved", "main": [*sys.argv[:1]], "has_cuda": True, "notes": notes}
        value["engine"] = "cupti-python"
        value.update(about.rank(), began_ns=self._began_ns, ended_ns=ended)
        with open(os.path.join(folder, "about-%d.json" % self._pid), "w") as file:
            json.dump(value, file)
