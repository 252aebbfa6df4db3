"""On which lines a program calls what can wait for the GPU: methods of tensors are followed for a few steps."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from typing import Any, List, Tuple

from gpudoctor.worker.tracing import about

METHODS = (
    *("item", "tolist", "cpu", "cuda", "to", "numpy", "nonzero", "copy_", "unique", "masked_select", "__repr__", "__format__"),
    *("__bool__", "__int__", "__float__", "__index__", "__getitem__", "__setitem__", "__contains__"),
)
MOST = 20000


class Calls:
    """found: (start, end, place) of each call, in nanoseconds since the epoch; places as those of the sampler."""

    def __init__(self, torch: Any, places: Any) -> None:
        self.found: List[Tuple[int, int, int]] = []
        self._torch = torch
        self._places = places
        self._is_on = False

    def start(self) -> None:
        """The methods of the C base class are hidden by ones of torch.Tensor, and shown again at the end.

        Not in a program that is compiled: torch.compile would look into them.
        """
        kind = getattr(self._torch, "Tensor", None)
        if kind is None or about.number_of_compilations():
            return
        for name in METHODS:
            plain = getattr(kind, name, None)
            if plain is not None and name not in vars(kind):
                setattr(kind, name, self._followed(plain))
        self._is_on = True

    def stop(self) -> None:
        if not self._is_on:
            return
        self._is_on = False
        for name in METHODS:
            if getattr(vars(self._torch.Tensor).get(name), "is_gpudoctors", False):
                with contextlib.suppress(AttributeError):
                    delattr(self._torch.Tensor, name)

    def _followed(self, plain: Any) -> Any:
        @functools.wraps(plain)
        def call(*args: Any, **words: Any) -> Any:
            start = time.time_ns()
            try:
                return plain(*args, **words)
            finally:
                if self._is_on and len(self.found) < MOST:
                    self._note(start)

        call.is_gpudoctors = True  # type: ignore[attr-defined]
        return call

    def _note(self, start: int) -> None:
        with contextlib.suppress(Exception):
            place = self._places.number(sys._getframe(2))
            if place is not None:
                self.found.append((start, time.time_ns(), place))
