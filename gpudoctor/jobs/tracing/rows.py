"""The events of a trace in columns of numbers: a few dozen bytes for each."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterable
from typing import Any

from gpudoctor.jobs.tracing.events import Trace
from gpudoctor.judging.jobs import kernel_names

BROKEN = (AttributeError, KeyError, OverflowError, TypeError, ValueError)  # of an event that no profiler wrote
# A profiler writes all operators first: each kind has room of its own, so that no trace is without its kernels.
MOST_ON_GPU = MOST_CALLS = MOST_OPERATORS = 1_000_000
GPU_KINDS = {"kernel": 0, "gpu_memcpy": 1, "gpu_memset": 2}
KERNEL, COPY = 0, 1
HOST_KINDS = {"cuda_runtime": 1, "cuda_driver": 1, "user_annotation": 2, "cpu_instant_event": 2}
OPERATOR, CALL, MARK = 0, 1, 2
MOST_FORMS = 16  # in which one kernel is launched
SHAPED = ("mm", "conv", "linear", "attention", "matmul")  # parts of names of operators whose shapes are kept
LAUNCH = ("grid", "block", "registers per thread", "shared memory", "est. achieved occupancy %")


class Names:
    """Text -> number, in order of appearance."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self._numbers))
        if number == len(self.all):
            self.all.append(text)
        return number


class Rows:
    """GPU and host events; times are in microseconds since `base_ns`. is_cut: some were left out."""

    def __init__(self) -> None:
        self.names = Names()
        self.base_ns = 0
        self.is_cut = False
        self._count: dict[str, int] = {}
        self.devices: list[dict[str, Any]] = []
        self.g_start, self.g_end = array("d"), array("d")
        self.g_kind, self.g_name = array("b"), array("l")
        self.g_stream, self.g_link, self.g_bytes = array("q"), array("q"), array("q")
        self.h_start, self.h_end = array("d"), array("d")
        self.h_kind, self.h_name = array("b"), array("l")
        self.h_thread, self.h_link = array("q"), array("q")
        self.launches: dict[int, dict[str, Any]] = {}  # name -> how most launches of a kernel, by time, were made
        self._launched: dict[int, dict[str, list[Any]]] = {}
        self.longest: dict[int, float] = {}
        self.shapes: dict[int, tuple[list[Any], list[Any]]] = {}  # host event -> dims and types of its inputs
        self.collectives: dict[str, int] = {}

    def read(self, events: Iterable[dict[str, Any]]) -> Rows:
        for event in events:
            if event.get("ph") != "X":
                continue
            kind = str(event.get("cat", "")).lower()
            with contextlib.suppress(*BROKEN):
                if kind in GPU_KINDS and self._has_room("gpu", MOST_ON_GPU):
                    self._add_gpu(event, GPU_KINDS[kind])
                elif kind == "cpu_op" and self._has_room(kind, MOST_OPERATORS):
                    self._add_host(event, OPERATOR)
                elif kind in HOST_KINDS and self._has_room("calls", MOST_CALLS):
                    self._add_host(event, HOST_KINDS[kind])
            if self.is_cut and self._is_full():
                break
        return self

    def _is_full(self) -> bool:
        """What would be left out from now on is not even read."""
        return self._count.get("gpu", 0) >= MOST_ON_GPU and self._count.get("calls", 0) >= MOST_CALLS

    def _has_room(self, kind: str, most: int) -> bool:
        self._count[kind] = self._count.get(kind, 0) + 1
        self.is_cut |= self._count[kind] > most
        return self._count[kind] <= most

    def _add_gpu(self, event: dict[str, Any], kind: int) -> None:
        args, name = event.get("args") or {}, self.names[str(event.get("name"))]
        start, duration = float(event["ts"]), float(event.get("dur", 0))
        stream = _number(args.get("device")) << 32 | _number(args.get("stream")) & 0xFFFFFFFF
        self.g_start.append(start)
        self.g_end.append(start + duration)
        self.g_kind.append(kind)
        self.g_name.append(name)
        self.g_stream.append(stream)
        self.g_link.append(_number(args.get("correlation")))
        self.g_bytes.append(_number(args.get("bytes")))
        if kind == KERNEL:
            self.longest[name] = max(duration, self.longest.get(name, -1.0))
            self._add_launch(name, duration, args)

    def _add_launch(self, name: int, duration: float, args: dict[str, Any]) -> None:
        forms = self._launched.setdefault(name, {})
        form = f"{args.get('grid')}{args.get('block')}{args.get('registers per thread')}"
        if form not in forms and len(forms) < MOST_FORMS:
            forms[form] = [0.0, {key: args[key] for key in LAUNCH if key in args}]
        if form in forms:
            forms[form][0] += duration
            best = self.launches.get(name)
            if best is None or forms[form][0] >= max(seconds for seconds, _ in forms.values()):
                self.launches[name] = forms[form][1]

    def _add_host(self, event: dict[str, Any], kind: int) -> None:
        args, name = event.get("args") or {}, str(event.get("name"))
        start, duration = float(event["ts"]), float(event.get("dur", 0))
        if kind == OPERATOR and "Input Dims" in args and any(part in name for part in SHAPED):
            self.shapes[len(self.h_start)] = args["Input Dims"], args.get("Input type") or []
        if "Collective name" in args:
            self.collectives[str(args["Collective name"])] = self.collectives.get(str(args["Collective name"]), 0) + 1
        self.h_start.append(start)
        self.h_end.append(start + duration)
        self.h_kind.append(kind)
        self.h_name.append(self.names[name])
        self.h_thread.append(_number(event.get("tid")))
        self.h_link.append(_number(args.get("correlation")))

    def name(self, number: int) -> str:
        return self.names.all[number]

    def kinds(self) -> dict[int, str]:
        """Name of a kernel -> its kind of work."""
        return {number: kernel_names.about(self.name(number)).kind for number in self.longest}


def read(trace: Trace) -> Rows:
    rows = Rows()
    rows.read(trace)
    rows.base_ns = trace.base_ns
    rows.is_cut |= trace.is_cut
    rows.devices = [one for one in trace.head.get("deviceProperties") or () if isinstance(one, dict)]
    return rows


def _number(value: Any) -> int:
    return value if isinstance(value, int) else int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else 0
