"""The CUDA release of the compiler (libNVVM) that Numba uses to produce PTX for the driver. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.versions import dotted
from gpudoctor.model import Fix, Problem

NVVM_WHEELS = ("nvidia-nvvm", "nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc-cu11")
NVVM_OF_CONDA = ("cuda-nvvm-impl", "cuda-nvvm", "cuda-nvcc-impl", "cuda-nvcc", "cudatoolkit")
# These compile Numba's PTX to GPU code in place of the driver.
LINKERS = ("cuda-core", "pynvjitlink", "pynvjitlink-cu12", "pynvjitlink-cu13", "ptxcompiler", "ptxcompiler-cu11")

SHOW = "<python> -c 'from numba import cuda; cuda.jit(\"void(f4[:])\")(lambda x: None)'"
OTHER_NUMBA = Fix(
    "Install a Numba that does not pass PTX to the driver",
    "<python> -m pip install -U <numba>",
    needs=("network",),
    verify=SHOW,
    kind="install",
)
OLDER = Fix(
    "Make Numba compile with the toolkit that the driver supports", "export CUDA_HOME=<older>", verify=SHOW, where="shell"
)


class Nvvm(NamedTuple):
    """A description of what Numba compiles with, and its version."""

    words: str
    version: str


def nvvm_for_the_driver(facts: Facts) -> Nvvm | None:
    """The libNVVM of a Numba that passes its PTX to the driver; None if it is missing, or if Numba links without the driver."""
    numba, numba_cuda = facts.python.package("numba"), facts.python.package("numba-cuda")
    if not (numba or numba_cuda) or any(facts.python.package(name) for name in LINKERS):
        return None
    name = f"numba-cuda {numba_cuda.version}" if numba_cuda else f"Numba {numba.version if numba else ''}"
    if numba_cuda and (wheel := next((found for each in NVVM_WHEELS if (found := facts.python.package(each))), None)):
        return Nvvm(f"{wheel.name} {wheel.version} for {name}", wheel.version)
    conda = facts.python.conda_packages
    if of_conda := next((each for each in NVVM_OF_CONDA if each in conda), None):
        version = conda[of_conda].version
        return Nvvm(f"{of_conda} {version} for {name}", version)
    return of_toolkit(facts, name)


def of_toolkit(facts: Facts, numba: str) -> Nvvm | None:
    """The toolkit that CUDA_HOME names, or /usr/local/cuda, if it has a libNVVM."""
    home = facts.environment.get("CUDA_HOME")
    root = facts.toolchain.root_of(home) if home else facts.toolchain.default_toolkit
    found = (kit for kit in facts.toolchain.toolkits if kit.root == root and kit.version)
    kit = next((kit for kit in found if any(path.startswith(f"{kit.root}/") for path in facts.toolchain.libnvvm)), None)
    if kit is None:
        return None
    version = dotted((kit.version or ())[:2])
    return Nvvm(f"libNVVM {version} in {kit.root} for {numba}", version)


def is_for_a_gpu(facts: Facts) -> bool:
    """Whether this Numba is meant to use a GPU; many packages need it only for the processor."""
    variables = any(name.startswith("NUMBA_CUDA_") for name in facts.environment.variables)
    return variables or facts.python.package("numba-cuda") is not None


def unreadable(problem: Problem, facts: Facts) -> Problem:
    """The problem of PTX that is too new, for Numba: it affects every kernel, since Numba produces only PTX.

    It stays a warning, which blocks no check of another framework: those do not use this compiler.
    """
    return replace(
        problem,
        title="Numba's GPU kernels fail: their PTX is too new for the driver",
        why="Numba compiles to PTX with libNVVM, and the driver compiles the rest. The driver cannot read PTX of a newer CUDA: "
        "error 222, CUDA_ERROR_UNSUPPORTED_PTX_VERSION. Precompiled code in PyTorch and other wheels is not affected.",
        latent=False,
        fixes=(OTHER_NUMBA, *((OLDER,) if older_toolkit(facts) else ()), *problem.fixes),
    )


def older_toolkit(facts: Facts) -> str | None:
    """The newest installed toolkit whose PTX the driver can read."""
    readable = [kit for kit in facts.toolchain.toolkits if kit.version and kit.version[:2] <= facts.cuda.driver_version]
    with_nvvm = [kit for kit in readable if any(path.startswith(f"{kit.root}/") for path in facts.toolchain.libnvvm)]
    return max(with_nvvm, key=lambda kit: kit.version or ()).root if with_nvvm else None
