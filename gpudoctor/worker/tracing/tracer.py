"""Decides when the profiler runs in a user's program: after its warm-up, for some steps, without disturbing it.

A window is measured in steps of the first optimizer that steps, else in seconds. It is recorded as it is, and then a few further
steps in detail. All that starts or stops the profiler happens in the main thread: in a step's hook, or between two of its
bytecodes (Py_AddPendingCall), without signals.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from typing import Any, Dict, List, Optional

from gpudoctor.worker.tracing import about, around, kineto, loading, stepping
from gpudoctor.worker.tracing.notes import note, write
from gpudoctor.worker.tracing.recorded import Recorded, Ticker
from gpudoctor.worker.tracing.scopes import Scopes

IDLE, EARLY, BETWEEN, WINDOW, LAST, DETAIL, DONE = "idle", "early", "between", "window", "last", "detail", "done"
RECORDING = (EARLY, WINDOW, DETAIL)
EARLY_SECONDS = 3.0  # without a step, the program is taken for one that has none; less if it is to be recorded earlier
LONGEST = 4  # times the wanted seconds, for steps that are long
LEAST_STEPS = 3
DETAIL_STEPS, DETAIL_SECONDS = 4, 1.0
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


class Tracer:
    """settings: {"folder", "steps", "seconds", "warmup", "after", "memory"}. steps: when each step ended, in nanoseconds.

    The window is from the step `began_steps` to `ended_steps`, both 0 if it is measured in seconds. From `after_steps` on nothing
    is recorded any more.
    """

    def __init__(self, torch: Any, settings: Dict[str, Any]) -> None:
        self.torch = torch
        self.settings = settings
        self.pid, self.cpu_s = os.getpid(), time.process_time()
        self.state = IDLE
        self.is_final = False  # nothing is recorded any more, whatever comes
        self.has_cuda, self.cuda_ns = False, 0
        self.followed = around.Followed()
        self.scopes = Scopes()
        self.stepping = stepping.Steps(torch)
        self.steps = self.stepping.ended_ns
        self.began_steps = self.ended_steps = self.detail_steps = self.after_steps = 0
        self.now: Optional[Recorded] = None
        self.early: Optional[Recorded] = None
        self.saved: Dict[str, Any] = {}
        self.scaler_updates = self.scaler_updates_before = 0
        self.notes: List[str] = []
        self.said = "attached"
        self._main = around.MainThread(self._give_up)
        self._waiting = Ticker(self._tick_between)

    def listen(self) -> None:
        self._tell("attached")
        self.torch.cuda._lazy_call(self._cuda_begins)
        around.after_each_step(self._stepped)
        around.before_other_profilers(self.torch, self._yield)
        around.before_each_update(self.torch, self._updated)
        loading.mark(self.torch, lambda: self.state in RECORDING)
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._forked)

    # What the program does.

    def _cuda_begins(self) -> None:
        self.has_cuda, self.cuda_ns = True, time.time_ns()
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
        is_enough = self.state == DONE and (self.is_final or len(self.steps) >= self.after_steps + MOST_AFTER > MOST_AFTER)
        if is_enough or not self.followed.is_this(optimizer):
            return
        self.stepping.end(self.has_cuda)
        if self.state == EARLY:
            self._finish_early()
        elif self.state == IDLE or (self.state == DONE and not self.after_steps):
            self.state = BETWEEN  # steps come after all, if late: what was recorded by the clock was the way to them
        elif self.state in (WINDOW, DETAIL) and not self.began_steps:
            self._discard()
        elif self.state == WINDOW and self._is_over():
            self._finish()
        elif self.state == LAST:
            self._begin_detail()
        elif self.state == DETAIL and len(self.steps) >= self.detail_steps + DETAIL_STEPS:
            self._finish_detail()
        if self.state == BETWEEN and len(self.steps) >= max(1, self.settings["warmup"]):
            self._begin()

    def _is_over(self) -> bool:
        done, limit = len(self.steps) - self.began_steps, self.settings["seconds"]
        seconds = self._seconds()
        return done >= self.settings["steps"] or (seconds >= limit and done >= LEAST_STEPS) or seconds >= LONGEST * limit

    def _seconds(self) -> float:
        return (time.time_ns() - self.now.began_ns) / 1e9 if self.now else 0.0

    def _tick(self) -> None:
        """In another thread, every few milliseconds while something is recorded."""
        seconds, by_steps = self._seconds(), LONGEST if self.began_steps else 1
        if self.state == EARLY and seconds >= min(EARLY_SECONDS, self.settings["after"] or EARLY_SECONDS):
            self._main.post(self._without_steps)
        elif self.state == WINDOW and seconds >= self.settings["seconds"] * by_steps:
            self._main.post(self._finish)
        elif self.state == WINDOW and self.now and self.stepping.is_late():
            self.now.look()
        elif self.state == DETAIL and seconds >= min(DETAIL_SECONDS, self.settings["seconds"]) * by_steps:
            self._main.post(self._finish_detail)

    # What the tracer does, all of it in the main thread.

    def _begin_early(self) -> None:
        """Short programs have no more than this."""
        if self.state == IDLE and self._start(EARLY, in_detail=True):
            self._tell("started")

    def _finish_early(self) -> None:
        if self._stop():
            self.early = self.now
            self.state = BETWEEN

    def _without_steps(self) -> None:
        if self.state == EARLY:
            self._finish_early()
            self._wait()

    def _wait(self) -> None:
        self._waiting = Ticker(self._tick_between)
        self._waiting.start()

    def _tick_between(self) -> None:
        """In another thread, until the time has come to record a program without steps."""
        if self.steps or self.state not in (BETWEEN, LAST):
            self._waiting.stop()
        elif self.state == LAST or time.time_ns() >= self.cuda_ns + 1e9 * self.settings["after"]:
            self._main.post(self._go_on_without_steps)

    def _go_on_without_steps(self) -> None:
        self._begin_detail()
        if self.state == BETWEEN and not self.steps:
            self._begin()

    def _begin(self) -> None:
        if self._start(WINDOW, in_detail=False):
            self.began_steps = len(self.steps)
            self.scaler_updates_before = self.scaler_updates

    def _discard(self) -> None:
        self.state = BETWEEN if self._stop() else self.state

    def _finish(self) -> None:
        """Of the window; then some steps in detail."""
        if self.state == WINDOW and self._stop() and self.now:
            self.ended_steps = len(self.steps) if self.began_steps else 0
            self.after_steps = self.ended_steps
            self.early = None
            self.saved = {**self.now.told, **self._counted(), "late": self.now.sampled}
            self.state = DONE
            self._save(self.now, "trace")
            if not self.is_final:
                self.state = LAST
                self._wait()

    def _begin_detail(self) -> None:
        if self.state == LAST and self._start(DETAIL, in_detail=True):
            self.detail_steps = len(self.steps)

    def _finish_detail(self) -> None:
        if self.state == DETAIL and self._stop() and self.now:
            self.after_steps = len(self.steps) if self.began_steps else 0
            self.state = DONE
            self.saved["detail"] = {**self.now.told, **self.now.sampled}
            self._save(self.now, "detail")

    def _counted(self) -> Dict[str, Any]:
        steps = self.ended_steps - self.began_steps if self.began_steps else 0
        return {"optimizer_steps": steps, "scaler_updates": self.scaler_updates - self.scaler_updates_before}

    def _start(self, state: str, in_detail: bool) -> bool:
        if not kineto.is_free(self.torch):
            return self._none("the program runs its own profiler")
        if (self.has_cuda and kineto.is_capturing(self.torch)) or not self.scopes.are_closed():
            return False
        self.now = Recorded(self.torch, self.has_cuda, in_detail, self._tick, in_detail and bool(self.settings.get("memory")))
        self.now.start()
        self.state = state
        return True

    def _stop(self) -> bool:
        """False if it cannot be stopped now; the next step or tick tries again."""
        if self.now is None or (self.has_cuda and kineto.is_capturing(self.torch)):
            return False
        self.now.stop()
        self.scopes.note()
        self.now.describe(self.followed.optimizer)
        return True

    def _save(self, recorded: Recorded, name: str) -> None:
        self.notes += recorded.save(self.settings["folder"], name)
        self._tell("saved")

    def _tell(self, state: str) -> None:
        self.said = state
        value: Dict[str, Any] = {"pid": self.pid, "state": state, "main": [*sys.argv[:1]], "has_cuda": self.has_cuda}
        value.update(about.rank(), notes=self.notes, **self.saved)
        value.update(steps_ns=self.steps, began_steps=self.began_steps, ended_steps=self.ended_steps)
        value.update(about.readable({"steps_gpu_ms": self.stepping.clock.milliseconds}))
        value.update(after_steps=self.after_steps, held=self.stepping.held)
        write(os.path.join(self.settings["folder"], "about-%d.json" % self.pid), value)

    def _yield(self) -> None:
        if self.is_final or os.getpid() != self.pid:
            return
        why = "the program uses its own profiler, which comes first"
        if self.state == IDLE:
            self._none(why)
        elif self.state != DONE:
            self.notes.append(why)
            self._end()
        self.is_final = True

    def _none(self, why: str) -> bool:
        self.notes.append(why)
        self.state, self.is_final = DONE, True
        self._tell("refused")
        return False

    def _give_up(self, failure: BaseException) -> None:
        was_recording = self.state in RECORDING
        self.state, self.is_final = DONE, True
        self.notes.append("stopped after an error: %s: %s" % (type(failure).__name__, failure))
        with contextlib.suppress(Exception):
            if was_recording and self.now:
                self.now.stop()
        with contextlib.suppress(Exception):
            self._tell("saved" if self.said == "saved" else "failed")

    def _end(self) -> None:
        """At the end of the program: what was recorded so far counts.

        After a crash among several ranks, the GPU may wait for the others for ever: then nothing waits for the GPU.
        """
        self._main.close()  # else a window begins while the last one is written, and CUPTI records while the program is torn down
        has_crashed = hasattr(sys, "last_type") and about.rank().get("world_size", 1) > 1
        self._waiting.stop()
        if os.getpid() != self.pid or (has_crashed and self.state in RECORDING):
            return
        self.is_final = True
        try:
            self._finish_all()
        except Exception as failure:
            self._give_up(failure)
        self.state = DONE

    def _finish_all(self) -> None:
        if self.state == IDLE:
            self.saved = about.without_cuda(self.torch, self.cpu_s)
        if self.state == EARLY:
            self._finish_early()
        if self.state == WINDOW:
            self._finish()
        if self.state == DETAIL:
            self._finish_detail()
        elif self.early:
            self.saved = {**self.early.told, **self._counted(), **self.early.sampled, "is_start": True}
            self._save(self.early, "trace")
            self.early = None
        else:
            self._tell(self.said)  # with the steps after the window

    def _forked(self) -> None:
        self.state, self.is_final = DONE, True
