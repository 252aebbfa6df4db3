"""What the tracer hears from a program (steps, scaler updates, other profilers), and how it acts in its main thread."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import threading
from typing import Any, Callable, Iterator

MOST_OTHERS = 8
PROFILERS = ("profile", "emit_nvtx", "emit_itt")
_PENDING = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class _Ours(threading.local):
    active = False


OURS = _Ours()
"""active: the profiler that is being made in this thread is the tracer's."""


def after_each_step(call: Callable[[Any, Any, Any], None]) -> None:
    """Of any optimizer; nothing before torch 2.0."""
    module = importlib.import_module("torch.optim.optimizer")
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register:
        register(call)


def before_other_profilers(torch: Any, call: Callable[[], None]) -> None:
    """Two profilers exclude each other."""
    for name in PROFILERS:
        kind = getattr(torch.autograd.profiler, name, None)
        if kind is not None:
            _wrap_init(kind, call)


def _wrap_init(kind: Any, call: Callable[[], None]) -> None:
    plain = kind.__init__

    def __init__(self: Any, *args: Any, **words: Any) -> None:  # noqa: N807
        if not OURS.active:
            call()
        plain(self, *args, **words)

    __init__.__doc__, __init__.__wrapped__ = plain.__doc__, plain  # type: ignore[attr-defined]
    kind.__init__ = __init__


def before_each_update(torch: Any, call: Callable[[], None]) -> None:
    """Of any gradient scaler."""
    kind = getattr(getattr(torch, "amp", None), "GradScaler", None) or getattr(torch.cuda.amp, "GradScaler", None)
    if kind is None:
        return
    plain = kind.update

    def update(self: Any, *args: Any, **words: Any) -> Any:
        call()
        return plain(self, *args, **words)

    update.__doc__, update.__wrapped__ = plain.__doc__, plain  # type: ignore[attr-defined]
    kind.update = update


class MainThread:
    """Calls something in the main thread, between two of its bytecodes: no signal, and nothing that a program can notice."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._pid = os.getpid()
        self._is_posted = False
        self._wanted: Callable[[], None] = _nothing
        self._is_closed = False
        self._pending = _PENDING(self._called)
        # Kept for ever: the interpreter may call it when it already clears the modules.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._pending))

    def post(self, action: Callable[[], None]) -> None:
        """One at a time; a further one is dropped until the first was called."""
        if not self._is_posted and not self._is_closed:
            self._wanted, self._is_posted = action, True
            if ctypes.pythonapi.Py_AddPendingCall(self._pending, None):
                self._is_posted = False

    def close(self) -> None:
        """At the end of the program: nothing is called any more, not even what is already posted."""
        self._is_closed = True

    def _called(self, nothing: Any) -> int:
        self._is_posted = False
        try:
            if os.getpid() == self._pid and not self._is_closed:
                with not_compiled():
                    self._wanted()
        except Exception as failure:
            self._failed(failure)
        return 0


@contextlib.contextmanager
def not_compiled() -> Iterator[None]:
    """In a program that torch.compile compiles at this moment, Dynamo would take what runs in here for a part of it."""
    module = sys.modules.get("torch._dynamo.eval_frame")
    choose = getattr(module, "set_eval_frame", None)
    if choose is None:
        yield
        return
    before = choose(None)
    try:
        yield
    finally:
        choose(before)


class Followed:
    """The optimizer whose steps count: the first one that steps in the main thread, until it has stopped."""

    def __init__(self) -> None:
        self.optimizer: Any = None
        self._others = 0  # steps of other ones since its last step

    def is_this(self, optimizer: Any) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return False
        self._others = 0 if optimizer is self.optimizer else self._others + 1
        if self.optimizer is None or self._others > MOST_OTHERS:
            self.optimizer, self._others = optimizer, 0
        return optimizer is self.optimizer


def _nothing() -> None:
    """Nothing is wanted yet."""
