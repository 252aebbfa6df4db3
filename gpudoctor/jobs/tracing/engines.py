"""What can trace a command: the profiler inside torch, or Nsight Systems from outside."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.errors import UserError
from gpudoctor.jobs.tracing import ncu
from gpudoctor.trying import command

TORCH, CUPTI, NSYS, NCU, COMPILERS = "torch.profiler", "cupti-python", "nsys", "ncu", "the compilers"
ENGINES = ("auto", "torch", "cupti", "nsys")
PLACES = ("/usr/local/cuda/bin/nsys", "/opt/nvidia/nsight-systems*/*/bin/nsys", "/usr/local/cuda-*/bin/nsys")
ASK_SECONDS = 20.0
WHICH = "import importlib.util as u; print([name for name in ('torch', 'cupti') if u.find_spec(name)])"
INSTALL = "install cupti-python in its environment, or Nsight Systems (https://developer.nvidia.com/nsight-systems)"


@dataclass(frozen=True)
class Engine:
    """why: the reason for the choice. path: of nsys or ncu. kernel: the name of the one to measure with ncu. inside: which of
    "torch" and "cupti" may record in the program; the program decides by what it uses."""

    name: str
    why: str
    path: str = ""
    kernel: str = ""
    inside: tuple[str, ...] = ("torch",)


def nsys() -> str:
    """The path of Nsight Systems, "" if it is not installed."""
    found = [path for pattern in PLACES for path in sorted(glob.glob(pattern), reverse=True) if os.access(path, os.X_OK)]  # noqa: PTH207
    return shutil.which("nsys") or next(iter(found), "")


def of_kernel(name: str) -> Engine:
    """Without ncu, only the code of the kernel is shown."""
    path = ncu.path()
    return Engine(
        NCU if path else COMPILERS, "--kernel measures one kernel with its counters" if path else ncu.MISSING, path, name
    )


def chosen(wanted: str, argv: Sequence[str], variables: Mapping[str, str]) -> Engine:
    """wanted: of ENGINES. UserError if the wanted one is not there."""
    path = nsys()
    if wanted == "nsys":
        if not path:
            raise UserError("nsys is not installed: not found on PATH, in a toolkit or in /opt/nvidia")
        return Engine(NSYS, "chosen by --engine", path)
    if wanted == "torch":
        return Engine(TORCH, "chosen by --engine")
    found = _modules(argv, variables)
    if wanted == "cupti":
        if "cupti" not in (found or ()):
            raise UserError("cupti-python is not installed in the Python of the command (pip install cupti-python)")
        return Engine(CUPTI, "chosen by --engine", inside=("cupti",))
    if found and "torch" in found:
        inside = ("torch", "cupti") if "cupti" in found else ("torch",)
        return Engine(TORCH, "the Python of the command has torch", inside=inside)
    if found and "cupti" in found:
        return Engine(CUPTI, "the Python of the command has cupti-python, and no torch", inside=("cupti",))
    if path and found is not None:
        return Engine(NSYS, "the Python of the command has no torch, and nsys is installed", path)
    if path and not _starts_python(argv):
        return Engine(NSYS, "the command is no Python program, and nsys is installed", path)
    why = "the Python of the command is not known; torch is traced if it is imported" if found is None else ""
    return Engine(TORCH, why or "torch is traced if a Python of the command imports it; cupti-python and nsys are not installed")


def _starts_python(argv: Sequence[str]) -> bool:
    return any("python" in Path(word).name or word.endswith(".py") for word in argv[:8])


def _modules(argv: Sequence[str], variables: Mapping[str, str]) -> str | None:
    """Which of torch and cupti the command's Python finds; None if that Python is not known, such as behind a shell script."""
    python = command.python_of(argv, variables)
    if python is None:
        return None
    try:
        asked = subprocess.run(
            (python, "-c", WHICH),
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout if asked.returncode == 0 else None
