"""What a text shows of jobs at work."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any


class ShownJobs:
    @abstractmethod
    def _value(self, name: str, otherwise: Any) -> Any: ...

    @cached_property
    def step(self) -> Mapping[str, float] | None:
        """Seconds of a training step, and of loading its data."""
        step: Mapping[str, float] | None = self._value("shown-step", None)
        return step

    @cached_property
    def gpu_memory(self) -> Mapping[str, int] | None:
        """MiB used and total, from a row of nvidia-smi."""
        memory: Mapping[str, int] | None = self._value("shown-gpu-memory", None)
        return memory

    @cached_property
    def ollama_share(self) -> Mapping[str, Any]:
        """ollama ps: gb, the size of a model; cpu, the percentage of it outside of the GPU; name."""
        return dict(self._value("shown-ollama-share", {}))

    @cached_property
    def ollama_gpu(self) -> Mapping[str, float] | None:
        """GiB total and free when Ollama started."""
        memory: Mapping[str, float] | None = self._value("shown-ollama-gpu", None)
        return memory

    @cached_property
    def offload(self) -> Mapping[str, float] | None:
        """Ollama's log: layers of a model, those placed on the GPU, and the GiB that all would need."""
        offload: Mapping[str, float] | None = self._value("shown-offload", None)
        return offload
