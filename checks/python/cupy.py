"""CuPy fits the driver, finds the CUDA libraries that it was built for, and has the headers that it compiles with.

What it means
The number in the name of a CuPy wheel is the CUDA release that it was built for: cupy-cuda12x. The wheel includes no CUDA
libraries (the extra [ctk] installs them). CuPy compiles most of its kernels at run time and needs CUDA's headers for that.

How it is judged
The wheel's CUDA release is not newer than the driver's. libcublas and libnvrtc of that release are installed: CuPy 14 and newer
look in wheels, conda and toolkits, older releases only where the loader looks. Since CUDA 12.2, NVRTC needs the headers of the
CUDA runtime: vector_types.h is in a toolkit, a wheel or the conda environment.

Known exceptions
An older CuPy uses the libraries that are already loaded in the process: after `import torch`, those of PyTorch's wheels (NVRTC
since PyTorch 2.7). With such a PyTorch, the missing path is only a warning. Not judged here: CuPy from conda, CuPy built from
source, and several CuPy packages at once. Without a CUDA driver, CuPy cannot use the GPU and the check is skipped.

References
https://github.com/cupy/cupy/blob/main/docs/source/install.rst
https://github.com/cupy/cupy/issues/8466
https://github.com/cupy/cupy/blob/v13.4.1/cupy_backends/cuda/_softlink.pyx
https://github.com/pytorch/pytorch/issues/145580
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from packaging.utils import canonicalize_name
from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.libraries import Library
from gpudoctor.facts.packages import Package
from gpudoctor.judging.python.driver_libraries import WRONG_LIBCUDA
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

GUIDE = "https://github.com/cupy/cupy/blob/main/docs/source/install.rst"
WHEEL = re.compile(r"cupy-cuda(\d\d)(?:x|\d)")
OLDEST_WHEEL = 11  # CUDA 10 had a separate wheel for each release
FINDS_WHEELS = Version("14")  # since this release, with cuda-pathfinder
LOADS_NVRTC = Version("2.7")  # since this release, importing PyTorch also loads NVRTC
NEEDS_HEADERS = (12, 2)
SHOW = "<python> -c 'import cupy; print(cupy.arange(3).sum())'"
CONDA = Fix(
    "Install CuPy from conda, which includes the libraries",
    "conda install -c conda-forge cupy",
    verify=SHOW,
    on=("conda",),
    kind="install",
)
NO_WHEEL = Fix("Install a newer driver: CuPy has no wheel for a CUDA release this old", verify=SHOW, recipe="driver")

WRONG_MAJOR = Problem(
    id="cupy-wrong-cuda-major",
    title="CuPy is built for a different CUDA release than this machine has",
    why="The wheel's name contains the CUDA release that it is built for. The driver or the installed CUDA libraries are of "
    "another release, so importing or using CuPy fails.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install the wheel that fits",
            command="<python> -m pip uninstall -y <package> && <python> -m pip install -U <right>",
            verify=SHOW,
            kind="install",
        ),
        CONDA,
    ),
    references=(GUIDE,),
)

NO_LIBRARIES = Problem(
    id="cupy-cuda-libraries-missing",
    title="CuPy finds no CUDA libraries",
    why="CuPy's wheel needs cuBLAS, NVRTC and other libraries of its CUDA release. Neither the wheel nor the driver includes "
    "them.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install a CuPy release that finds the CUDA wheels", "<python> -m pip install -U <right>", verify=SHOW, kind="install"
        ),
        CONDA,
    ),
    references=(GUIDE,),
)

AFTER_TORCH = replace(
    NO_LIBRARIES,
    title="CuPy finds the CUDA libraries only after PyTorch is imported",
    why="This CuPy finds CUDA libraries only where the loader looks, and here they are only in wheels. PyTorch loads them from "
    "its wheels, and CuPy can then use them. A program that imports CuPy first or alone fails.",
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix("Import PyTorch first", verify="<python> -c 'import torch, cupy; print(cupy.arange(3).sum())'"),
        NO_LIBRARIES.fixes[0],
    ),
)

NO_HEADERS = Problem(
    id="cupy-missing-cuda-headers",
    title="CuPy cannot compile: the headers of the CUDA runtime are missing",
    why="Since CUDA 12.2, NVRTC needs CUDA's own headers, which no CuPy wheel includes. Every operation that CuPy compiles "
    "fails with 'cannot open source file \"vector_types.h\"'.",
    action=Action.INSTALL,
    fixes=(
        Fix("Install the headers of the same release as NVRTC", "<python> -m pip install <headers>", verify=SHOW, kind="install"),
        Fix(
            "Install the headers from conda",
            "conda install -c conda-forge cuda-cudart-dev",
            verify=SHOW,
            on=("conda",),
            kind="install",
        ),
    ),
    references=(GUIDE, "https://github.com/cupy/cupy/issues/8466"),
)


def wheel(facts: Facts) -> tuple[Package, int]:
    """The CuPy wheel and the CUDA release in its name."""
    names = [name for name in facts.python.packages if name == "cupy" or WHEEL.fullmatch(name)]
    if not names:
        raise Skip("CuPy is not installed in this Python")
    if len(names) > 1:
        raise Skip(f"several CuPy packages are installed: {', '.join(names)}")
    built_for = WHEEL.fullmatch(names[0])
    if not built_for:
        raise Skip("this CuPy is from conda or built from source, not a wheel for one CUDA release")
    return facts.python.packages[names[0]][0], int(built_for[1])


def judge(facts: Facts) -> Iterator[Finding]:
    package, major = wheel(facts)
    if facts.cuda.library is None:
        raise Skip("no CUDA driver is available to CuPy")
    driver = facts.cuda.driver_version
    if major > driver[0]:
        message = f"{_words(package)} is built for CUDA {major}; the driver supports CUDA {driver[0]}.{driver[1]}"
        too_new = offering(WRONG_MAJOR, driver[0]).found(
            message, _evidence(facts, package, driver[0], driver="{}.{}".format(*driver)), packages=(package.name,)
        )
        yield replace(too_new, causes=WRONG_LIBCUDA)
        return
    problems = list(libraries(facts, package, major))
    yield from problems or headers(facts, package, major)


def offering(problem: Problem, right: int) -> Problem:
    """Drop the fix that names a wheel if no wheel exists for a CUDA this old."""
    return problem if right >= OLDEST_WHEEL else replace(problem, fixes=(NO_WHEEL, CONDA))


def libraries(facts: Facts, package: Package, major: int) -> Iterator[Finding]:
    present = set(facts.libraries.majors("libcublas"))
    if major not in present:
        others = sorted(present)
        if others:
            right = max((other for other in others if other <= facts.cuda.driver_version[0]), default=major)
            message = f"{_words(package)} needs CUDA {major}; the libraries here are for CUDA {', '.join(map(str, others))}"
            yield offering(WRONG_MAJOR, right).found(
                message, _evidence(facts, package, right, found=others), packages=(package.name,)
            )
        else:
            yield offering(NO_LIBRARIES, major).found(
                f"{_words(package)} needs libcublas.so.{major}, which is not installed",
                _evidence(facts, package, major),
                packages=(package.name,),
            )
    elif Version(package.version) < FINDS_WHEELS:
        yield from unreachable(facts, package, major)


def unreachable(facts: Facts, package: Package, major: int) -> Iterator[Finding]:
    """Libraries that are installed, but not where the loader looks for this CuPy."""
    present = (facts.libraries.majors(name).get(major) for name in ("libcublas", "libnvrtc"))
    library = next(
        (one for one in present if one and one.owner != "conda" and not facts.libraries.resolved(named(one, major))), None
    )
    if library is None:
        return
    message = f"{named(library, major)} is only in {library.directory}, where CuPy {package.version} does not look"
    evidence = _evidence(facts, package, major, library=library.path)
    if library.owner == "wheel" and torch_loads_it(facts, major):
        words = f"{message}; 'import torch' ({facts.python.torch_version}) loads it"
        yield AFTER_TORCH.found(words, evidence, confidence=Confidence.LIKELY, packages=(package.name,))
    else:
        yield NO_LIBRARIES.found(message, evidence, confidence=Confidence.LIKELY, packages=(package.name,))


def named(library: Library, major: int) -> str:
    """The soname to load: libcublas.so.12."""
    return f"{library.name}.so.{major}"


def torch_loads_it(facts: Facts, major: int) -> bool:
    """Whether importing PyTorch first loads the libraries of this CUDA release into the process."""
    torch = facts.python.package("torch")
    if torch is None or Version(torch.version) < LOADS_NVRTC:
        return False
    cuda = facts.python.torch_cuda
    return cuda is not None and int(cuda.split(".")[0]) == major


def headers(facts: Facts, package: Package, major: int) -> Iterator[Finding]:
    if any(path.endswith("/vector_types.h") for path in facts.toolchain.headers):
        return
    nvrtc = nvrtc_version(facts, major)
    if (nvrtc or NEEDS_HEADERS if major == 12 else (major, 0)) < NEEDS_HEADERS:
        return
    name = f"nvidia-cuda-runtime-cu{major}" if major < 13 else "nvidia-cuda-runtime"
    pin = f"=={nvrtc[0]}.{nvrtc[1]}.*" if nvrtc else f"=={major}.*"
    release = f"{nvrtc[0]}.{nvrtc[1]}" if nvrtc else f"{major}"
    message = f"no vector_types.h in any toolkit, wheel or conda environment; NVRTC {release} of {_words(package)} needs it"
    yield NO_HEADERS.found(message, {"headers": name + pin, "nvrtc": release}, packages=(package.name,))


def nvrtc_version(facts: Facts, major: int) -> tuple[int, int] | None:
    """Major and minor version of NVRTC, from its file name or its wheel; None if neither contains the minor version."""
    library = facts.libraries.majors("libnvrtc").get(major)
    package = facts.python.package(f"nvidia-cuda-nvrtc-cu{major}") or facts.python.package("nvidia-cuda-nvrtc")
    stated = [library.version if library else None, package.version if package else None]
    numbers = (re.match(rf"({major})\.(\d+)", version) for version in stated if version)
    return next(((int(found[1]), int(found[2])) for found in numbers if found), None)


def _evidence(facts: Facts, package: Package, right: int, **more: object) -> dict[str, object]:
    """right: the CUDA release of the wheel to install. The extra [ctk] is added only if its libraries are not installed yet."""
    if right < OLDEST_WHEEL:
        return {"package": canonicalize_name(package.name), **more}
    extra = "[ctk]" if right >= 12 and right not in facts.libraries.majors("libcublas") else ""
    return {"package": canonicalize_name(package.name), "right": f"cupy-cuda{right}x{extra}", **more}


def _words(package: Package) -> str:
    return f"{canonicalize_name(package.name)} {package.version}"


def summary(facts: Facts) -> str:
    package, major = wheel(facts)
    return f"{_words(package)} with CUDA {major} libraries and headers"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG_MAJOR, NO_LIBRARIES, NO_HEADERS),
    explained_by=("driver-cuda-support",),
)
