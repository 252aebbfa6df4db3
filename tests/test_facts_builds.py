"""Which toolkit a build takes, where CUDA_HOME leads to, and which libcuda is which."""

from __future__ import annotations

from typing import Any

import machine
import pytest
from each import each

from gpudoctor.facts import Facts
from gpudoctor.facts.builds import conflict, homes
from gpudoctor.facts.cuda import is_compat, release_of
from gpudoctor.facts.replies import Replies
from gpudoctor.facts.toolchain import Toolchain
from gpudoctor.model import Reply, Unavailable


def toolchain(**more: Any) -> Toolchain:
    found = {
        "programs": {},
        "versions": {"/usr/local/cuda-13.0/bin/nvcc": "release 13.0, V13.0.88", "/usr/bin/g++-12": "g++-12 (Debian) 12.2.0"},
        "real_paths": {},
        "toolkits": [{"root": "/usr/local/cuda-13.0", "cuda_h": "#define CUDA_VERSION 13000"}],
        "default": "/usr/local/cuda-13.0",
    }
    return Toolchain(Replies({"toolchain": Reply("ok", {**found, **more})}))


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/opt/link", "/usr/local/cuda-13.0"),
        ("/opt/gone", None),
        ("/usr/local/cuda-13.0/", "/usr/local/cuda-13.0"),
        ("/usr/local/cuda", "/usr/local/cuda-13.0"),
    ],
)
def test_where_a_variable_leads_to(path: str, root: str | None) -> None:
    assert toolchain(homes={"/opt/link": "/usr/local/cuda-13.0", "/opt/gone": None}).root_of(path) == root


def test_a_path_that_was_not_looked_at_is_not_missing() -> None:
    with pytest.raises(Unavailable):
        toolchain().root_of("/opt/other")


def test_nvcc_that_is_not_on_path() -> None:
    found = toolchain()
    assert found.nvcc is None
    assert found.default_nvcc
    assert found.default_nvcc.version == (13, 0, 88)


def test_program_by_its_path() -> None:
    named = toolchain().program_at("/usr/bin/g++-12")
    assert named
    assert named.version == (12, 2, 0)
    assert toolchain().program_at("/usr/bin/g++-13") is None


@pytest.mark.parametrize(
    ("case", "name", "root"),
    [
        ("toolkits-ubuntu-nvcc-first", "/usr/local/cuda", "/usr/local/cuda-13.0"),
        ("toolkits-home-against-path", "CUDA_HOME", "/usr/local/cuda-12.8"),
    ],
)
def test_ways_that_disagree(case: str, name: str, root: str) -> None:
    found = conflict(Facts(machine.load(case)))
    assert found
    assert (found.name, found.root) == (name, root)


@each("case", ["toolkits-side-by-side", "cuda-home-by-link", "cuda-home-removed", "workstation", "pascal"])
def test_ways_that_agree(case: str) -> None:
    assert conflict(Facts(machine.load(case))) is None


def test_homes_are_those_that_are_set() -> None:
    assert homes(Facts(machine.load("cuda-home-is-usr"))) == {"CUDA_PATH": "/home/user"}


@each(
    ("path", "release", "compat"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", "580.159.04", False),
        ("/usr/local/cuda-12.9/compat/libcuda.so.575.57.08", "575.57.08", True),
        ("/opt/conda/cuda-compat/libcuda.so.570.86.10", "570.86.10", True),
        ("/usr/lib/wsl/lib/libcuda.so.1.1", None, False),
        ("/usr/local/cuda/lib64/stubs/libcuda.so", None, False),
    ],
)
def test_libcuda_by_its_path(path: str, release: str | None, compat: bool) -> None:
    assert (release_of(path), is_compat(path)) == (release, compat)
