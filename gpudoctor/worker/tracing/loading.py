"""Marks the time in which the program starts and ends the workers of a DataLoader, as torch marks the wait for a batch."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable

MARKED = (("DataLoader", "__iter__"), ("_MultiProcessingDataLoaderIter", "_shutdown_workers"))


def mark(torch: Any, is_recording: Callable[[], bool]) -> None:
    try:
        module = importlib.import_module("torch.utils.data.dataloader")
    except ImportError:
        return
    for kind_name, name in MARKED:
        kind = getattr(module, kind_name, None)
        if name in vars(kind or object):
            label = "enumerate(DataLoader)#%s.%s" % (kind_name, name)
            setattr(kind, name, _marked(torch, getattr(kind, name), label, is_recording))


def _marked(torch: Any, plain: Any, label: str, is_recording: Callable[[], bool]) -> Any:
    @functools.wraps(plain)
    def call(*args: Any, **words: Any) -> Any:
        if not is_recording():
            return plain(*args, **words)
        with torch.autograd.profiler.record_function(label):
            return plain(*args, **words)

    return call
