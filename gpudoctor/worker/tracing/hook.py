"""Attaches the tracer to a module such as torch, as soon as the program has imported it."""

from __future__ import annotations

import contextlib
import sys
from importlib.machinery import ModuleSpec
from typing import Any, Optional, Sequence

AUTOTUNERS = ("torch._inductor.runtime.triton_heuristics", "triton.runtime.autotuner")
TORCH = ("torch",)
USERS_OF_CUDA = ("cupy", "numba.cuda", "jax", "cuda.bindings", "pycuda", "tensorflow")


def install(settings: str) -> None:
    """Called at the start of each Python below the command, most of which never import torch: nothing else is loaded yet."""
    wanted = AUTOTUNERS if '"kernel"' in settings else TORCH * ('"torch"' in settings) + USERS_OF_CUDA * ('"cupti"' in settings)
    sys.meta_path.insert(0, Finder(wanted, settings))


class Finder:
    """Finds some modules as the other finders do, and calls the tracer after their import."""

    def __init__(self, wanted: Sequence[str], settings: str) -> None:
        self.wanted = wanted
        self.settings = settings

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None, target: Any = None) -> Optional[ModuleSpec]:
        if name not in self.wanted:
            return None
        self.wanted = [other for other in self.wanted if other != name]
        self._leave()
        for finder in [*sys.meta_path]:
            find = getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find else None
            if spec is not None:
                self._watch(spec)
                return spec
        return None

    def _leave(self) -> None:
        """When there is nothing more to find."""
        if not self.wanted and self in sys.meta_path:
            sys.meta_path.remove(self)

    def _watch(self, spec: ModuleSpec) -> None:
        """The loader stays the user's own: only its next exec_module is followed by the tracer."""
        loader: Any = spec.loader
        plain = getattr(loader, "exec_module", None)
        if plain is None:
            return
        settings = self.settings

        def exec_module(module: Any) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            plain(module)
            attached(module, settings)

        with contextlib.suppress(AttributeError):  # a loader with slots
            loader.exec_module = exec_module


def attached(module: Any, settings: str) -> None:
    import json

    if module.__name__ in USERS_OF_CUDA:
        from gpudoctor.worker.tracing import activity

        activity.attach(json.loads(settings))
        return
    if module.__name__ in AUTOTUNERS:
        from gpudoctor.worker.tracing import tuned

        tuned.attach(module, json.loads(settings))
        return
    from gpudoctor.worker.tracing import tracer

    tracer.attach(module, json.loads(settings))
