"""ONNX Runtime's CUDA provider is the one in place, and its CUDA and cuDNN libraries are there.

What it means
onnxruntime-gpu uses the GPU through a provider library. That library needs cuBLAS, cuDNN and others of exactly the major
versions that it was built for. If one is missing, ONNX Runtime prints an error and computes on the CPU.

How it is judged
The installed files belong to onnxruntime-gpu, not to the package onnxruntime, which writes to the same folder. The driver
supports the CUDA release of the build. libcublas and libcudnn of the right major versions are installed: as wheels, by conda, in
a toolkit or where the loader looks.

Known exceptions
If only the CPU package is installed, the CPU is what was asked for. Libraries in wheels are found only after torch is imported
or onnxruntime.preload_dlls() is called (1.21 and newer). Without a CUDA driver, running on the CPU is right.

References
https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html
https://github.com/microsoft/onnxruntime/issues/21435
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.packages import Package
from gpudoctor.fixes.common import NEWER_DRIVER
from gpudoctor.judging.python.driver_libraries import WRONG_LIBCUDA
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip

GUIDE = "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html"
PROVIDERS = "<python> -c 'import onnxruntime; print(onnxruntime.get_available_providers())'"
CPU_AND_GPU = "<python> -m pip uninstall -y onnxruntime onnxruntime-gpu && <python> -m pip install <package>"

SHADOWED = Problem(
    id="onnxruntime-cpu-package-shadows-gpu",
    title="The package onnxruntime has overwritten onnxruntime-gpu",
    why="Both packages install the same files. The CPU package was installed last (often as a requirement of another package), "
    "so the CUDA provider is not available.",
    action=Action.INSTALL,
    fixes=(Fix("Remove both, then install the GPU package", CPU_AND_GPU, verify=PROVIDERS, kind="install"),),
    references=("https://github.com/microsoft/onnxruntime/issues/21435",),
)

LIBRARY_MISSING = Problem(
    id="onnxruntime-cuda-ep-lib-missing",
    title="ONNX Runtime cannot load its CUDA provider: a CUDA library is missing",
    why="The provider needs CUDA and cuDNN libraries of the major versions that it was built for; other major versions do not "
    "work. ONNX Runtime then computes on the CPU.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install a release with matching libraries; call onnxruntime.preload_dlls() before the first session",
            "<python> -m pip install -U <package>",
            verify="<python> -c 'import onnxruntime; onnxruntime.preload_dlls(); onnxruntime.print_debug_info()'",
            kind="install",
        ),
    ),
    references=(GUIDE, "https://github.com/microsoft/onnxruntime/issues/21435"),
)

OLD_DRIVER = Problem(
    id="onnxruntime-driver-too-old",
    title="ONNX Runtime is built for a newer CUDA than the driver supports",
    why="The package on PyPI switches to a new CUDA release now and then (1.27: CUDA 13), which an older driver does not "
    "support.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install the last release for the driver's CUDA",
            "<python> -m pip install <package>",
            verify=PROVIDERS,
            kind="install",
        ),
        NEWER_DRIVER,
    ),
    references=(GUIDE,),
)

RELEASES = {11: "<1.19", 12: ">=1.19,<1.27", 13: ">=1.27"}  # on PyPI, by CUDA release


def judge(facts: Facts) -> Iterator[Finding]:
    package = installed(facts)
    driver = facts.cuda.driver_version
    right = fitting(facts)
    cpu = facts.python.package("onnxruntime")
    if cpu and facts.python.onnxruntime_package == "onnxruntime":
        message = f"onnxruntime {cpu.version} (CPU only) has overwritten onnxruntime-gpu {package.version}"
        yield SHADOWED.found(message, {"package": right}, packages=("onnxruntime", package.name))
        return
    cuda, cudnn = built_for(facts, package)
    if cuda > driver[0]:
        message = f"onnxruntime-gpu {package.version} is built for CUDA {cuda}; the driver supports CUDA {driver[0]}.{driver[1]}"
        too_old = OLD_DRIVER.found(message, {"package": right, "driver_cuda": "{}.{}".format(*driver)}, packages=(package.name,))
        yield replace(too_old, causes=WRONG_LIBCUDA)
    else:
        yield from libraries(facts, package, {"libcublas": (cuda,), "libcudnn": cudnn})


def installed(facts: Facts) -> Package:
    package = facts.python.package("onnxruntime-gpu")
    if package is None and facts.python.package("onnxruntime"):
        raise Skip("only the CPU package of ONNX Runtime is installed (the GPU package is onnxruntime-gpu)")
    if package is None:
        raise Skip("ONNX Runtime is not installed in this Python")
    if facts.cuda.library is None:
        raise Skip("no CUDA driver is available to ONNX Runtime")
    return package


def built_for(facts: Facts, package: Package) -> tuple[int, tuple[int, ...]]:
    """The major version of CUDA, and the possible major versions of cuDNN."""
    version = Version(package.version)
    rows = (row for row in knowledge.packages("onnxruntime-gpu") if Version(row.version).release[:2] <= version.release[:2])
    row = next(rows, None)
    if row is None:
        raise Skip(f"the CUDA release that onnxruntime-gpu {package.version} was built for is unknown", Skip.NO_ANSWER)
    stated = facts.python.onnxruntime_cuda or row.cuda.lstrip("~=")
    cuda = int(stated.split(".")[0])
    # Builds of 1.18 for CUDA 12 were on a separate feed: 1.18.0 with cuDNN 8, 1.18.1 with cuDNN 9.
    cudnn = (8, 9) if version.release[:2] == (1, 18) and cuda == 12 else (int((row.cudnn or "9").lstrip("~=").split(".")[0]),)
    return cuda, cudnn


def libraries(facts: Facts, package: Package, needed: dict[str, tuple[int, ...]]) -> Iterator[Finding]:
    missing = [(name, majors) for name, majors in needed.items() if not set(majors) & set(facts.libraries.majors(name))]
    if not missing:
        return
    words = " and ".join(f"{name}.so.{majors[-1]} (here: {facts.libraries.here(name)})" for name, majors in missing)
    message = f"onnxruntime-gpu {package.version} needs {words}"
    yield LIBRARY_MISSING.found(message, {"package": fitting(facts)}, packages=(package.name,))


def fitting(facts: Facts) -> str:
    """The requirement to install: the release for the installed CUDA libraries that the driver supports, else with libraries."""
    driver = min(facts.cuda.driver_version[0], max(RELEASES))
    here = [major for major in RELEASES if major <= driver and major in facts.libraries.majors("libcublas")]
    cuda = max(here, default=driver)
    absent = ["cuda"] * (not here) + ["cudnn"] * (9 not in facts.libraries.majors("libcudnn"))
    extras = f"[{','.join(absent)}]" if absent and cuda > min(RELEASES) else ""
    return f"onnxruntime-gpu{extras}{RELEASES.get(cuda, '')}"


def summary(facts: Facts) -> str:
    package = installed(facts)
    return f"onnxruntime-gpu {package.version} with CUDA {built_for(facts, package)[0]} libraries"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SHADOWED, LIBRARY_MISSING, OLD_DRIVER),
    explained_by=("driver-cuda-support",),
)
