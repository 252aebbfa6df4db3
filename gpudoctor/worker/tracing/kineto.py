"""The profiler inside torch: started and stopped without a word on the program's own output."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from typing import Any, Iterator, List

LINES = re.compile(rb"^(USDT|STAGE|INFO|WARNING|ERROR):\d{4}-\d\d-\d\d .*\.cpp:\d+\] (.*)$")
MOST_NOTES = 20


class Recording:
    """One window of torch's profiler. Used from one thread only, as the profiler itself requires.

    with_operators: each operator, with the shapes of its inputs. Without them only the work of the GPU, CUDA's calls and named
    ranges are recorded: an operator costs the host more to record than a launch.
    """

    def __init__(self, torch: Any, with_cuda: bool, with_operators: bool) -> None:
        self.torch = torch
        self.with_operators = with_operators
        self.with_cuda = with_cuda
        self.notes: List[str] = []
        self._results: Any = None
        self._profile = self._made()

    def _made(self) -> Any:
        profile = self.torch.autograd.profiler.profile
        words = {"use_kineto": True, "record_shapes": self.with_operators}
        if not self.with_cuda:
            return profile(**words)
        try:
            return profile(use_device="cuda", **words)
        except TypeError:  # before torch 2.1
            return profile(use_cuda=True, **words)

    def start(self) -> None:
        with quiet(self.notes):
            self._profile._prepare_trace()
            if self.with_operators or not self.with_cuda or not self._has_started_without_operators():
                self._profile._start_trace()

    def _has_started_without_operators(self) -> bool:
        """False before torch 2.1, which cannot be asked for named ranges alone."""
        profile, module = self._profile, self.torch.autograd.profiler
        try:
            scopes = {self.torch._C._profiler.RecordScope.USER_SCOPE}
            self.torch.autograd._enable_profiler(profile.config(), profile.kineto_activities, scopes)
        except (AttributeError, TypeError):
            return False
        profile.entered = True
        began = getattr(module, "_run_on_profiler_start", None)
        if began:
            began()
        return True

    def stop(self) -> None:
        with quiet(self.notes):
            if self.with_cuda:
                self.torch.cuda.synchronize()
            self._results = self.torch.autograd._disable_profiler()
            done = getattr(self.torch.autograd.profiler, "_run_on_profiler_stop", None)
            if done:
                done()

    def save(self, path: str) -> None:
        """Complete or not at all."""
        part = path + ".part"
        with quiet(self.notes):
            self._results.save(part)
        os.replace(part, path)
        self._results = None


def is_free(torch: Any) -> bool:
    """Whether the program runs no own profiler at this moment."""
    enabled = getattr(torch.autograd, "_profiler_enabled", None)
    return not (enabled and enabled())


def is_capturing(torch: Any) -> bool:
    """Whether a CUDA graph is being captured, which allows no synchronisation."""
    return bool(torch.cuda.is_current_stream_capturing())


@contextlib.contextmanager
def quiet(notes: List[str]) -> Iterator[None]:
    """Takes the profiler's own lines off standard error; what other threads write meanwhile is written a moment later."""
    try:
        kept = os.dup(2)
        room = tempfile.TemporaryFile()  # noqa: SIM115
    except OSError:
        yield
        return
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    os.dup2(room.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        room.seek(0)
        for line in room.read().splitlines(True):
            found = LINES.match(line.strip())
            if found is None:
                os.write(2, line)
            elif found[1] in (b"WARNING", b"ERROR") and len(notes) < MOST_NOTES:
                notes.append(found[2].decode("utf-8", "replace"))
        room.close()
