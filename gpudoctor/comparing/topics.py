"""The topics of differences, and so how much they matter if nothing proves it."""

from __future__ import annotations

import re

from gpudoctor.comparing.deciding import HOST

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
