"""Second rung of the toolchain: NVRTC, a compiler library that PyTorch, CuPy and others ship, compiles CUDA C++ to PTX.

API: https://docs.nvidia.com/cuda/nvrtc/
"""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import sys
from typing import Any, Iterator, Optional

from gpudoctor.worker.measuring import programs, square
from gpudoctor.worker.measuring.bench import ONCE, Bench, Workload
from gpudoctor.worker.measuring.driver import Driver, Module
from gpudoctor.worker.reply import Skip

NAME = "libnvrtc.so.[0-9]*"
TOOLKITS = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda")


class NvrtcError(Exception):
    """A function of NVRTC did not return 0."""


def run(bench: Bench) -> None:
    """In addition to the results in square.py: compiler {"path", "version"}."""
    path = find()
    if path is None:
        raise Skip(
            "libnvrtc is not installed (pip install nvidia-cuda-nvrtc): not found in site-packages/nvidia, CUDA toolkits or the "
            "loader's folders",
            Skip.NOT_INSTALLED,
        )
    bench.keep("compiler", path=path)

    def build(driver: Driver) -> Module:
        nvrtc = Nvrtc(path)
        bench.keep("compiler", path=path, version=nvrtc.version())
        return driver.module(nvrtc.ptx(square.SOURCE, "compute_" + square.architecture(driver)))

    square.by_driver(bench, build)


def find() -> Optional[str]:
    """The library that a program of this Python most likely uses: a path, or the loader's name for it."""
    return next(places(), None)


def places() -> Iterator[str]:
    """NVIDIA's wheels, the toolkits that variables name, those in the usual folders, conda, the loader's folders."""
    homes = [glob.escape(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    patterns = [os.path.join(folder, "lib") for folder in programs.in_wheels("cuda_nvrtc", "cu[0-9]*")]
    patterns += [os.path.join(root, folder) for root in [*homes, *TOOLKITS] for folder in ("lib64", "targets/*/lib")]
    patterns += [os.path.join(glob.escape(sys.prefix), "lib")]
    for pattern in patterns:
        yield from sorted(glob.glob(os.path.join(pattern, NAME)), key=programs.numbers, reverse=True)
    name = ctypes.util.find_library("nvrtc")
    if name:
        yield name


class Nvrtc:
    """The NVRTC library."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def __call__(self, function: str, *arguments: Any) -> None:
        code = getattr(self.library, function)(*arguments)
        if code:
            raise NvrtcError("%s: %s (%d)" % (function, self.library.nvrtcGetErrorString(code).decode(), code))

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return "%d.%d" % (major.value, minor.value)

    def ptx(self, source: str, architecture: str) -> str:
        program = ctypes.c_void_p()
        self("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"square.cu", 0, None, None)
        try:
            options = (ctypes.c_char_p * 1)(("--gpu-architecture=" + architecture).encode())
            try:
                self("nvrtcCompileProgram", program, 1, options)
            except NvrtcError as failure:
                raise NvrtcError("%s: %s" % (failure, self._text("ProgramLog", program))) from None
            return self._text("PTX", program)
        finally:
            self("nvrtcDestroyProgram", ctypes.byref(program))

    def _text(self, what: str, program: Any) -> str:
        size = ctypes.c_size_t()
        self("nvrtcGet%sSize" % what, program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        self("nvrtcGet" + what, program, text)
        return text.value.decode("ascii", "replace").strip()


WORKLOAD = Workload(run, scope=ONCE, seconds=60, typical_seconds=2)
