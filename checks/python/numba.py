"""Numba can compile for the GPU: libNVVM and libdevice are there.

What it means
Numba compiles Python to device code with libNVVM and libdevice, the library of device functions. Both are parts of the CUDA
toolkit, not of the driver, and no Numba package installs them unless you request its extra.

How it is judged
libnvvm.so and libdevice.10.bc are in a toolkit, in NVIDIA's wheels (nvidia-cuda-nvcc-cu12, nvidia-nvvm) or in the conda
environment.

Known exceptions
Many packages use Numba only on the CPU. The check therefore runs only if numba-cuda is installed or a NUMBA_CUDA_ variable is
set. It is skipped if CUDA is simulated (NUMBA_ENABLE_CUDASIM) and without a CUDA driver.

References
https://github.com/NVIDIA/numba-cuda/blob/main/docs/source/user/installation.rst
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip

SHOW = "<python> -c 'from numba import cuda; cuda.jit(\"void(f4[:])\")(lambda x: None)'"

MISSING = Problem(
    id="numba-libnvvm-missing",
    title="Numba cannot compile for the GPU: libNVVM or libdevice is missing",
    why="libNVVM and libdevice are parts of the CUDA toolkit; the driver does not include them. numba.cuda.is_available() may "
    "still return True, but the first kernel fails with NvvmSupportError.",
    action=Action.INSTALL,
    fixes=(
        Fix("Install them as wheels", "<python> -m pip install -U <package>", verify=SHOW, kind="install"),
        Fix(
            "Install them from conda",
            "conda install -c conda-forge numba-cuda cuda-nvcc cuda-nvrtc",
            verify=SHOW,
            on=("conda",),
            kind="install",
        ),
    ),
    references=("https://github.com/NVIDIA/numba-cuda/blob/main/docs/source/user/installation.rst",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    name = wanted(facts)
    parts = {"libnvvm.so": facts.toolchain.libnvvm, "libdevice.10.bc": facts.toolchain.libdevice}
    missing = [part for part, paths in parts.items() if not paths]
    if missing:
        yield MISSING.found(
            f"{name} finds no {' and no '.join(missing)} in a toolkit, a wheel or the conda environment",
            {"missing": missing, "package": package_with_parts(facts)},
            packages=("numba", "numba-cuda"),
        )


def wanted(facts: Facts) -> str:
    """The name and version of the Numba that is meant to use a GPU; Skip if none is."""
    package, numba_cuda = facts.python.package("numba"), facts.python.package("numba-cuda")
    if not (package or numba_cuda):
        raise Skip("Numba is not installed in this Python")
    variables = [name for name in facts.environment.variables if name.startswith("NUMBA_CUDA_")]
    if not (numba_cuda or variables):
        raise Skip("nothing uses Numba on a GPU here (numba-cuda is not installed, no NUMBA_CUDA_ variable is set)")
    if facts.environment.get("NUMBA_ENABLE_CUDASIM") not in (None, "", "0"):
        raise Skip("NUMBA_ENABLE_CUDASIM is set: Numba simulates CUDA")
    if facts.cuda.library is None:
        raise Skip("no CUDA driver is available to Numba")
    return f"numba-cuda {numba_cuda.version}" if numba_cuda else f"Numba {package.version if package else ''}"


def package_with_parts(facts: Facts) -> str:
    """The wheel that matches the installed CUDA wheels (PyTorch pins them); without those, numba-cuda's extra."""
    for nvrtc, parts in (("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvcc-cu12"), ("nvidia-cuda-nvrtc", "nvidia-nvvm")):
        package = facts.python.package(nvrtc)
        if package:
            return f"{parts}=={'.'.join(package.version.split('.')[:2])}.*"
    bindings = facts.python.package("cuda-bindings")
    major = int(bindings.version.split(".")[0]) if bindings else 12
    return f"numba-cuda[cu{min(major, facts.cuda.driver_version[0])}]"


def summary(facts: Facts) -> str:
    return f"{wanted(facts)} with {facts.toolchain.libnvvm[0]}"


CHECK = Check(judge=judge, summary=summary, problems=(MISSING,))
