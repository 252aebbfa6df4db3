"""Decides when the profiler runs in a user's program: after its warm-up, for some steps, without disturbing it.

A window is measured in steps of the first optimizer that steps, else in seconds. All that starts or stops the profiler happens in
the main thread: in a step's hook, or between two of its bytecodes (Py_AddPendingCall), without signals.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from gpudoctor.worker.tracing import about, around, kineto, sampler

IDLE, EARLY, BETWEEN, WINDOW, DONE = "idle", "early", "between", "window", "done"
EARLY_SECONDS = 3.0  # without a step, the program is taken for one that has none
LONGEST = 4  # times the wanted seconds, for steps that are long
LEAST_STEPS = 3
MOST_AFTER = 40  # steps that are timed without the profiler

tracers: List[Tracer] = []


def attach(torch: Any, settings: Dict[str, Any]) -> None:
    """Never raises: the program goes on as it would."""
    if tracers:
        return
    try:
        tracers.append(Tracer(torch, settings))
        tracers[0].listen()
    except Exception as failure:
        note(settings, "the tracer could not be attached: %s: %s" % (type(failure).__name__, failure))


def note(settings: Dict[str, Any], words: str) -> None:
    with contextlib.suppress(Exception):
        _write(os.path.join(settings["folder"], "note-%d.json" % os.getpid()), {"pid": os.getpid(), "note": words})


def _write(path: str, value: Dict[str, Any]) -> None:
    part = "%s.part-%d" % (path, os.getpid())
    with open(part, "w") as file:
        json.dump(value, file)
    os.replace(part, path)


class Tracer:
    """settings: {"folder", "steps", "seconds", "warmup"}."""

    def __init__(self, torch: Any, settings: Dict[str, Any]) -> None:
        self.torch = torch
        self.settings = settings
        self.pid = os.getpid()
        self.state = IDLE
        self.has_cuda = False
        self.followed = around.Followed()
        self.steps: List[int] = []  # when each step ended, in nanoseconds
        self.began_ns = self.began_steps = self.ended_ns = self.ended_steps = 0
        self.recording: Optional[kineto.Recording] = None
        self.early: Optional[Dict[str, Any]] = None
        self.sampler: Optional[sampler.Sampler] = None
        self.about: Dict[str, Any] = {}
        self.scaler_updates = self.scaler_updates_before = 0
        self.notes: List[str] = []
        self.clock = around.Clock(torch)
        self._said = "attached"
        self._told: Optional[Dict[str, Any]] = None
        self._taken: Any = None
        self._main = around.MainThread(self._give_up)

    def listen(self) -> None:
        torch = self.torch
        self._tell("attached")
        torch.cuda._lazy_call(self._cuda_begins)
        around.after_each_step(self._stepped)
        around.before_other_profilers(torch, self._yield)
        around.before_each_update(torch, self._updated)
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._forked)

    # What the program does.

    def _cuda_begins(self) -> None:
        self.has_cuda = True
        if self.state == IDLE:
            self._main.post(self._begin_early)

    def _updated(self) -> None:
        self.scaler_updates += 1

    def _stepped(self, optimizer: Any, args: Any, words: Any) -> None:
        try:
            self._step(optimizer)
        except Exception as failure:
            self._give_up(failure)

    def _step(self, optimizer: Any) -> None:
        if not self.followed.is_this(optimizer) or (self.state == DONE and len(self.steps) >= self.ended_steps + MOST_AFTER):
            return
        now = time.time_ns()
        self.steps.append(now)
        if self.has_cuda:
            self.clock.mark(len(self.steps) - 1)
        if self.state == EARLY:
            self._finish_early()
        elif self.state == IDLE:
            self.state = BETWEEN
        elif self.state == WINDOW and not self.began_steps:
            self._discard()
        elif self.state == WINDOW and self._is_over(now):
            self._finish()
        if self.state == BETWEEN and len(self.steps) >= max(1, self.settings["warmup"]):
            self._begin()

    def _is_over(self, now: int) -> bool:
        done, seconds = len(self.steps) - self.began_steps, (now - self.began_ns) / 1e9
        if done >= self.settings["steps"]:
            return True
        limit = self.settings["seconds"]
        return (seconds >= limit and done >= LEAST_STEPS) or seconds >= LONGEST * limit

    def _tick(self) -> None:
        """In the sampler's thread, every few milliseconds while something is recorded."""
        seconds = (time.time_ns() - self.began_ns) / 1e9
        if self.state == EARLY and seconds >= EARLY_SECONDS:
            self._main.post(self._without_steps)
        elif self.state == WINDOW and seconds >= self.settings["seconds"] * (LONGEST if self.began_steps else 1):
            self._main.post(self._finish)

    # What the tracer does, all of it in the main thread.

    def _begin_early(self) -> None:
        """Short programs have no more than this."""
        if self.state == IDLE and self._start():
            self.state = EARLY
            self._tell("started")

    def _finish_early(self) -> None:
        if self._is_capturing():
            return
        if self._stop():
            self.early = {"recording": self.recording, "sampler": self.sampler, "about": self._described()}
        self.state = BETWEEN

    def _without_steps(self) -> None:
        if self.state == EARLY:
            self._finish_early()
        if self.state == BETWEEN:
            self._begin()

    def _begin(self) -> None:
        if self._start():
            self.state = WINDOW
            self.began_steps = len(self.steps)

    def _discard(self) -> None:
        """The first step came after all: what was recorded was the way to it."""
        self._stop()
        self.state = BETWEEN

    def _finish(self) -> None:
        if self.state != WINDOW or self._is_capturing():
            return
        self.ended_ns, self.ended_steps = time.time_ns(), len(self.steps)
        self.state = DONE
        if self._stop():
            self.early = None
            self.about = self._described()
            self._save(self.recording, self.sampler, self.about)

    def _start(self) -> bool:
        torch = self.torch
        if not kineto.is_free(torch):
            return self._none("the program runs its own profiler")
        if self._is_capturing():
            return False
        around.OURS.active = True
        try:
            self.recording = kineto.Recording(torch, self.has_cuda)
            self.before = about.memory(torch) if self.has_cuda else {}
            self.compiled_before = about.number_of_compilations()
            self.scaler_updates_before = self.scaler_updates
            self.recording.start()
        finally:
            around.OURS.active = False
        self.began_ns = time.time_ns()
        self.sampler = sampler.Sampler(threading.main_thread().ident or 0, self._tick)
        self.sampler.start()
        return True

    def _is_capturing(self) -> bool:
        """A CUDA graph that is being captured allows no synchronisation."""
        return bool(self.has_cuda and self.torch.cuda.is_current_stream_capturing())

    def _stop(self) -> bool:
        if self.sampler:
            self.sampler.stop()
        if self.recording is None:
            return False
        self.stopped_ns = time.time_ns()
        self.recording.stop()
        return True

    def _described(self) -> Dict[str, Any]:
        torch, has_cuda = self.torch, self.has_cuda
        steps = len(self.steps) - self.began_steps if self.began_steps else 0
        return {
            "began_ns": self.began_ns,
            "ended_ns": self.stopped_ns,
            "optimizer_steps": steps,
            "settings": about.settings(torch),
            **about.readable(
                {
                    "device": lambda: about.device(torch) if has_cuda else None,
                    "memory_before": lambda: self.before,
                    "memory": lambda: about.memory(torch) if has_cuda else None,
                    "holders": lambda: about.holders(self.followed.optimizer),
                    "compiled": lambda: about.compilations(self.compiled_before),
                    "scaler_updates": lambda: self.scaler_updates - self.scaler_updates_before,
                }
            ),
        }

    def _save(self, recording: Any, taken: Any, told: Dict[str, Any]) -> None:
        recording.save(os.path.join(self.settings["folder"], "trace-%d.json" % self.pid))
        self.notes += recording.notes
        self._tell("saved", told, taken)

    def _tell(self, state: str, told: Optional[Dict[str, Any]] = None, taken: Any = None) -> None:
        value: Dict[str, Any] = {"pid": self.pid, "state": state, "main": [*sys.argv[:1]], "has_cuda": self.has_cuda}
        value.update(about.rank(), notes=self.notes, **(told or {}))
        if taken:
            value.update(samples=taken.samples, places=taken.places)
        value.update(steps_ns=self.steps, began_steps=self.began_steps, ended_steps=self.ended_steps, thread=self._thread())
        value.update(about.readable({"steps_gpu_ms": self.clock.milliseconds}))
        _write(os.path.join(self.settings["folder"], "about-%d.json" % self.pid), value)
        self._said, self._told, self._taken = state, told, taken

    def _thread(self) -> int:
        main = threading.main_thread()
        return int(getattr(main, "native_id", 0) or self.pid)

    def _yield(self) -> None:
        if self.state == DONE or os.getpid() != self.pid:
            return
        why = "the program uses its own profiler, which comes first"
        if self.state == IDLE:
            self._none(why)
        else:
            self.notes.append(why)
            self._end()

    def _none(self, why: str) -> bool:
        self.notes.append(why)
        self.state = DONE
        self._tell("refused")
        return False

    def _give_up(self, failure: BaseException) -> None:
        self.state = DONE
        self.notes.append("stopped after an error: %s: %s" % (type(failure).__name__, failure))
        with contextlib.suppress(Exception):
            self._stop()
        with contextlib.suppress(Exception):
            self._tell("failed")

    def _end(self) -> None:
        """At the end of the program: what was recorded so far counts.

        After a crash among several ranks, the GPU may wait for the others for ever: then nothing waits for the GPU.
        """
        has_crashed = hasattr(sys, "last_type") and about.rank().get("world_size", 1) > 1
        if os.getpid() != self.pid or self.state == IDLE or (has_crashed and self.state in (EARLY, WINDOW)):
            return
        try:
            if self.state == EARLY:
                self._finish_early()
            if self.state == WINDOW:
                self._finish()
            elif self.early:
                self._save(self.early["recording"], self.early["sampler"], self.early["about"])
            else:
                self._tell(self._said, self._told, self._taken)  # with the steps after the window
        except Exception as failure:
            self._give_up(failure)
        self.state = DONE

    def _forked(self) -> None:
        self.state = DONE
