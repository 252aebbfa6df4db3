"""Versions of compilers and toolkits, and which of them a build takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each import each

from gpudoctor.facts.replies import Replies
from gpudoctor.facts.toolchain import Toolchain, program_version, toolkit_version
from gpudoctor.model import Reply, Unavailable

NVCC_11_5 = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2021 NVIDIA Corporation
Built on Thu_Nov_18_09:45:30_PST_2021
Cuda compilation tools, release 11.5, V11.5.119
Build cuda_11.5.r11.5/compiler.30672275_0
"""
NVCC_13_0 = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""
NCU = """NVIDIA (R) Nsight Compute Command Line Profiler
Copyright (c) 2018-2025 NVIDIA Corporation
Version 2025.3.1.0 (build 36398880) (public-release)
"""


@each(
    ("text", "expected"),
    [
        (NVCC_11_5, (11, 5, 119)),
        (NVCC_13_0, (13, 0, 88)),
        (NCU, (2025, 3, 1, 0)),
        ("NVIDIA Nsight Systems version 2024.6.2.225-246235244400v0", (2024, 6, 2, 225)),
        ("gcc (Ubuntu 13.3.0-6ubuntu2~24.04.1) 13.3.0\nCopyright (C) 2023 Free Software Foundation", (13, 3, 0)),
        ("gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5)", (11, 5, 0)),
        ("x86_64-conda-linux-gnu-gcc (conda-forge gcc 12.4.0-2) 12.4.0", (12, 4, 0)),
        ("Ubuntu clang version 14.0.0-1ubuntu1.1\nTarget: x86_64-pc-linux-gnu", (14, 0, 0)),
        ("1.11.1.git.kitware.jobserver-1", (1, 11, 1)),
        ("no version here", None),
        ("", None),
    ],
)
def test_program_version(text: str, expected: tuple[int, ...] | None) -> None:
    assert program_version(text) == expected


@each(
    ("record", "expected"),
    [
        ({"version_json": json.dumps({"cuda": {"name": "CUDA SDK", "version": "12.4.1"}})}, (12, 4, 1)),
        ({"version_txt": "CUDA Version 10.2.89\n"}, (10, 2, 89)),
        ({"version_json": "{broken", "cuda_h": "#define CUDA_VERSION 12080"}, (12, 8)),
        ({"cuda_h": "#define CUDA_VERSION 13000"}, (13, 0)),
        ({"root": "/usr/local/cuda-11.8"}, (11, 8)),
        ({}, None),
    ],
)
def test_toolkit_version(record: dict[str, str], expected: tuple[int, ...] | None) -> None:
    assert toolkit_version({"root": "/opt/cuda", **record}) == expected


def toolchain(**found: Any) -> Toolchain:
    empty: dict[str, Any] = {"programs": {}, "versions": {}, "real_paths": {}, "toolkits": [], "default": None}
    return Toolchain(Replies({"toolchain": Reply("ok", {**empty, "nvvm": [], "headers": [], **found})}))


def test_nvccs_in_path_order_and_each_once() -> None:
    versions = {
        "/usr/bin/nvcc": NVCC_11_5,
        "/usr/local/cuda/bin/nvcc": NVCC_13_0,
        "/usr/bin/gcc": "gcc (GCC) 11.5.0",
        "/usr/local/cuda-13.0/bin/nvcc": NVCC_13_0,
        "/usr/local/cuda-12.4/bin/nvcc": None,
    }
    found = toolchain(
        programs={"nvcc": ["/usr/bin/nvcc", "/usr/local/cuda/bin/nvcc"], "gcc": ["/usr/bin/gcc"]},
        versions=versions,
        real_paths={"/usr/local/cuda/bin/nvcc": "/usr/local/cuda-13.0/bin/nvcc"},
    )
    assert [(tool.path, tool.version) for tool in found.nvccs] == [
        ("/usr/bin/nvcc", (11, 5, 119)),
        ("/usr/local/cuda/bin/nvcc", (13, 0, 88)),
        ("/usr/local/cuda-12.4/bin/nvcc", None),
    ]
    assert found.nvcc == found.nvccs[0]
    assert {name: tool.version for name, tool in found.compilers.items()} == {"gcc": (11, 5, 0)}


def test_nvcc_that_is_not_on_path_is_not_the_one_that_a_build_takes() -> None:
    found = toolchain(versions={"/usr/local/cuda-12.4/bin/nvcc": NVCC_13_0})
    assert len(found.nvccs) == 1
    assert found.nvcc is None


def test_what_numba_needs() -> None:
    site = "/venv/lib/python3.12/site-packages/nvidia/cu13"
    found = toolchain(nvvm=[f"{site}/lib/libnvvm.so.4", f"{site}/nvvm/libdevice/libdevice.10.bc"])
    assert found.libnvvm == (f"{site}/lib/libnvvm.so.4",)
    assert found.libdevice == (f"{site}/nvvm/libdevice/libdevice.10.bc",)


def test_toolchain_that_was_not_read_is_not_empty() -> None:
    with pytest.raises(Unavailable):
        _ = Toolchain(Replies({"toolchain": Reply("died")})).programs
