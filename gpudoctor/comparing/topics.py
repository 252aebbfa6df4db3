"""The topics of differences, and so how much they matter if nothing proves it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpudoctor.comparing.deciding import HOST
from gpudoctor.model import Diagnosis

_DRIVER_FILES = "file:/(proc/driver|sys/module)/nvidia"
# Matched with a question and a part of its answer, joined by a space: driver, GPUs, libraries, variables, the system.
_TOPICS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(nvml|cuda|command:modinfo nvidia|{_DRIVER_FILES}/version) ",
        rf"(nvml:|cuda:|pci |kernel-log |devices |kernel-modules |command:nvidia-smi|{_DRIVER_FILES})",
        r"(torch|libraries|packages|onnxruntime|bitsandbytes|toolchain|wsl-libraries) ",
        r"environment (LD_|CUDA|CU(DNN|BLAS|PY)_|NCCL_|NVIDIA_|PYTHON|(PY)?TORCH_|TF_|XLA_|JAX_|NUMBA_|TRITON_)",
        r"(uname|interpreter|conda|wsl|limits|cpus|cgroup-limits|docker|cdi|file:/(etc/os-release|proc/cmdline)) ",
    )
)
REST = len(_TOPICS)


def topic(question: str, part: str) -> int:
    """The smaller, the more likely to matter; REST if it can be anything."""
    said = f"{question.removeprefix(HOST)} {part}"
    return next((number for number, pattern in enumerate(_TOPICS) if pattern.match(said)), REST)


_NAMES = re.compile(r"packages|os-packages|environment|libraries|package-[a-z]+:(?P<package>\S+)")
_WORD = re.compile(r"[a-z0-9_.+-]{3,}")


def named_by(problems: Iterable[Diagnosis]) -> set[str]:
    """The words of what was found and of its evidence; those that end a program are left out, as they name everything."""
    said = (f"{entry.message} {[value for name, value in entry.evidence.items() if name != 'last_words']}" for entry in problems)
    return {word.replace("-", "_") for words in said for word in _WORD.findall(words.lower())}


def is_named(question: str, part: str, words: set[str]) -> bool:
    """Whether a problem names this package, library or variable."""
    found = _NAMES.fullmatch(question.removeprefix(HOST))
    return found is not None and (found["package"] or part).lower().replace("-", "_") in words
