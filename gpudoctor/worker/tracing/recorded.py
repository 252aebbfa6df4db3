"""One window of a program: what the profiler, the sampler and torch itself say about it."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, List

from gpudoctor.worker.tracing import about, allocated, around, kineto, sampler

TICK_SECONDS = 0.02


class Recorded:
    """Started and stopped in the main thread.

    in_detail: also with operators and their shapes, and with sampled stacks. All of that costs the program some time.
    with_history: of torch's allocator.
    """

    def __init__(self, torch: Any, has_cuda: bool, in_detail: bool, tick: Callable[[], None], with_history: bool) -> None:
        self.torch, self.has_cuda, self.in_detail, self.with_history = torch, has_cuda, in_detail, with_history
        around.OURS.active = True
        try:
            self.recording = kineto.Recording(torch, has_cuda, in_detail)
        finally:
            around.OURS.active = False
        self.memory_before = about.memory(torch) if has_cuda else {}
        self.compiled_before = about.number_of_compilations()
        self.began_ns = self.stopped_ns = 0
        self.told: Dict[str, Any] = {}
        self._ticker = Ticker(tick)
        self._sampler = sampler.Sampler(threading.main_thread().ident or 0)
        self._history = allocated.History(torch, self._sampler.kind)

    def start(self) -> None:
        if self.with_history and self.has_cuda:
            self._history.start()
        self.recording.start()
        self.began_ns = time.time_ns()
        self._ticker.start()
        if self.in_detail:
            self._sampler.start()

    def stop(self) -> None:
        self.stopped_ns = time.time_ns()
        self._ticker.stop()
        self._sampler.stop()
        self.recording.stop()

    def describe(self, optimizer: Any) -> None:
        """After the stop; what is asked later would be of another time."""
        torch = self.torch
        self._history.stop(optimizer)
        self.told = {"began_ns": self.began_ns, "ended_ns": self.stopped_ns, "settings": about.settings(torch)}
        self.told.update(
            about.readable(
                {
                    "device": lambda: about.device(torch) if self.has_cuda else None,
                    "memory_before": lambda: self.memory_before,
                    "memory": lambda: about.memory(torch) if self.has_cuda else None,
                    "holders": lambda: about.holders(optimizer),
                    "compiled": lambda: about.compilations(self.compiled_before),
                }
            )
        )

    @property
    def sampled(self) -> Dict[str, Any]:
        return {
            "samples": self._sampler.samples,
            "places": self._sampler.places,
            "allocations": self._history.found,
        }

    def look(self) -> None:
        """Where the program is now, in another thread."""
        self._sampler.take()

    def save(self, folder: str, name: str) -> List[str]:
        """Returns what the profiler complained about."""
        self.recording.save(os.path.join(folder, "%s-%d.json" % (name, os.getpid())))
        return self.recording.notes


class Ticker:
    """Calls something all the time, in a thread that nearly always sleeps."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="gpudoctor-ticker", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(TICK_SECONDS):
            self._tick()
