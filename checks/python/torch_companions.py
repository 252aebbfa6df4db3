"""Compiled packages that belong to PyTorch were built for the PyTorch that is installed.

What it means
torchvision, torchaudio, xformers and flash-attn contain C++ and CUDA code compiled against one PyTorch release. With another
release, importing them fails with "undefined symbol", or their operators do not exist.

How it is judged
- The installed PyTorch meets the requirement in each package's metadata ("torch==2.8.0").
- The CUDA release in the version of torchvision and torchaudio ("+cu126", "+cpu") matches PyTorch's.
- The file name of an extension's wheel matches PyTorch: flash_attn-2.7.4+cu12torch2.6cxx11abiFALSE was built for CUDA 12,
  PyTorch 2.6 and the old C++ ABI.
- Triton is the one version that PyTorch's metadata names.

Known exceptions
Newer releases of torchaudio do not name a PyTorch version. An extension that was compiled on this machine has no such file name,
so a later change of PyTorch cannot be detected.

References
https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.packages import Package
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status, Unavailable

INDEX = "https://download.pytorch.org/whl/"
SAME_BUILD = ("torchvision", "torchaudio", "torchtext")
COMPANIONS = (*SAME_BUILD, "xformers", "vllm", "torch-tensorrt")
TRITON = ("triton", "pytorch-triton")
# +cu12torch2.6cxx11abiFALSE of flash-attn, causal-conv1d and mamba-ssm; +pt26cu124 of PyTorch Geometric
TAG = re.compile(
    r"\+ (?: cu(?P<cuda>\d{2})\d? )? torch(?P<torch>\d+\.\d+)(?:\.\d+)? (?: cxx11abi(?P<abi>TRUE|FALSE) )?",
    re.IGNORECASE | re.VERBOSE,
)
PYG_TAG = re.compile(r"\+pt(?P<major>\d)(?P<minor>\d+)cu(?P<cuda>\d{2})\d$")

MISMATCH = Problem(
    id="torch-companion-mismatch",
    title="A package is compiled for a different PyTorch than the installed one",
    why="PyTorch's C++ interface changes with every release. Packages compiled against another release fail at import "
    "('undefined symbol', 'operator torchvision::nms does not exist') or lose their compiled code.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Let pip choose the release that matches the installed PyTorch",
            command="<python> -m pip uninstall -y <packages> && "
            "<python> -m pip install torch==<torch> <packages> --index-url <index> --extra-index-url https://pypi.org/simple",
            needs=("network",),
            verify="<python> -c 'import torch, <module>'",
            kind="install",
        ),
    ),
)

EXTENSION = Problem(
    id="flash-attn-abi-mismatch",
    title="An extension (such as flash-attn) is compiled for another PyTorch",
    why="The wheel's file name contains the PyTorch, CUDA and C++ ABI that it was compiled for, and they differ from the "
    "installed ones. Importing it fails with 'undefined symbol: _ZN3c10...'.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Reinstall it for this PyTorch; without a prebuilt wheel this compiles it, which requires nvcc and takes time",
            command="<python> -m pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir <packages>",
            needs=("network",),
            verify="<python> -c 'import torch, <module>'",
            kind="install",
        ),
    ),
)

OTHER_TRITON = Problem(
    id="triton-not-the-pinned-version",
    title="Triton is not the version that this PyTorch requires",
    why="PyTorch uses Triton's internals and requires one release of it. With another release, torch.compile fails or falls "
    "back, while eager code works.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install the Triton release that PyTorch requires",
            command="<python> -m pip install <requirement>",
            needs=("network",),
            verify="<python> -c 'import torch, triton; print(torch.__version__, triton.__version__)'",
            kind="install",
        ),
    ),
    status=Status.WARN,
)


class Built(NamedTuple):
    """What a wheel was built for according to its name; None for what the name does not contain."""

    torch: tuple[int, int]
    cuda_major: int | None
    new_abi: bool | None


def judge(facts: Facts) -> Iterator[Finding]:
    torch = facts.python.package("torch")
    if torch is None:
        raise Skip("PyTorch is not installed in this Python")
    yield from companions(facts)
    yield from triton(facts, torch)
    yield from extensions(facts)


def companions(facts: Facts) -> Iterator[Finding]:
    """One finding for all, since one change of PyTorch caused them."""
    packages = [package for name in COMPANIONS if (package := facts.python.package(name))]
    wrong = {package: why for package in packages if (why := _why_not(facts, package))}
    if wrong:
        version = _torch_version(facts)
        words = ", ".join(f"{package.name} {package.version} {why}" for package, why in wrong.items())
        evidence = {"torch": Version(version).public, "index": INDEX + _variant(facts), **_names(wrong)}
        found = MISMATCH.found(f"{words}; torch is {version}", evidence, packages=("torch", *evidence["packages"]))
        yield replace(found, because="framework-from-conda-and-pip")


def _names(packages: Iterable[Package]) -> dict[str, Any]:
    names = [canonicalize_name(package.name) for package in packages]
    return {"packages": names, "module": names[0].replace("-", "_")}


def _why_not(facts: Facts, package: Package) -> str | None:
    version = _torch_version(facts)
    wanted = [line for line in _requirements(facts, package) if canonicalize_name(line.name) == "torch"]
    unmet = next((line for line in wanted if not _meets(line, version)), None)
    return f"needs {unmet}" if unmet else _other_release(package, version) or _other_cuda(facts, package)


def _other_release(package: Package, version: str) -> str | None:
    """From the numbers alone, where a text shows no requirements: https://github.com/pytorch/vision#installation"""
    torch, own = Version(version), Version(package.version)
    if package.stated_requires is not None or torch.major != 2 or torch.is_prerelease or own.is_prerelease:
        return None
    wanted = {"torchvision": (0, torch.minor + 15), "torchaudio": (2, torch.minor)}.get(canonicalize_name(package.name))
    return f"is not the release for it ({wanted[0]}.{wanted[1]})" if wanted and own.release[:2] != wanted else None


def _requirements(facts: Facts, package: Package) -> tuple[Requirement, ...]:
    return known(lambda: facts.python.requirements(package), ())


def _torch_version(facts: Facts) -> str:
    """The version with its local part (2.11.0+cu130), which the metadata of wheels from PyPI lacks."""
    if version := facts.python.torch_version:
        return version
    raise Unavailable("the version of PyTorch is not known")


def _meets(line: Requirement, version: str) -> bool:
    """A development build (2.9.0a0 in NVIDIA's containers) counts as its release."""
    return any(line.specifier.contains(text, prereleases=True) for text in (version, Version(version).base_version))


def _variant(facts: Facts) -> str:
    return "cu" + facts.python.torch_cuda.replace(".", "") if facts.python.torch_cuda else "cpu"


def _other_cuda(facts: Facts, package: Package) -> str | None:
    """The mismatch of the CUDA release in the version of a package that is built together with PyTorch, if any."""
    cuda, local = facts.python.torch_cuda, Version(package.version).local or ""
    if canonicalize_name(package.name) not in SAME_BUILD:
        return None
    if cuda is None:
        return f"was built for CUDA {_dotted(local)}" if local.startswith("cu") else _of_pypi(facts, package, local)
    if local == "cpu":
        return "is built without CUDA"
    built_for = re.fullmatch(r"cu(\d{2})\d", local)
    if built_for and built_for[1] != cuda.split(".")[0]:
        return f"was built for CUDA {built_for[1]}"
    return _other_abi(facts, package, local)


def _dotted(local: str) -> str:
    return f"{local[2:-1]}.{local[-1]}"


def _of_pypi(facts: Facts, package: Package, local: str) -> str | None:
    """PyPI's wheels for Linux on x86_64 have no local version and are built with CUDA, unlike a torch with +cpu."""
    is_x86 = known(lambda: facts.system.architecture, "x86_64") == "x86_64" and not facts.shown.is_windows
    if is_x86 and not local and _torch_version(facts).endswith("+cpu") and not known(lambda: facts.python.conda_packages):
        return "is PyPI's build with CUDA, and torch is a CPU build"
    return None


def _other_abi(facts: Facts, package: Package, local: str) -> str | None:
    """PyTorch 2.6 has the new C++ ABI only in its builds for CUDA 12.6."""
    torch = Version(_torch_version(facts))
    if not local.startswith("cu") or not (torch.local or "").startswith("cu"):
        return None
    own, wanted = (_new_abi(Version(f"{torch.public}+{build}"), _dotted(build)) for build in (local, torch.local or ""))
    return "has another C++ ABI" if own is not wanted else None


def triton(facts: Facts, torch: Package) -> Iterator[Finding]:
    for line in _requirements(facts, torch):
        if canonicalize_name(line.name) not in TRITON:
            continue
        package = facts.python.package(line.name)
        if package is None or not line.specifier.contains(package.version, prereleases=True):
            found = f"triton {package.version} is installed" if package else "it is not installed"
            requirement = f"{line.name}{line.specifier}"
            words = f"torch {torch.version} needs {requirement}; {found}"
            yield OTHER_TRITON.found(words, {"requirement": requirement}, packages=("torch", line.name))


def extensions(facts: Facts) -> Iterator[Finding]:
    found = {}
    for package, *_ in facts.python.packages.values():
        built = built_for(package.file or "") or built_for(package.version)
        differences = ", ".join(_differences(facts, built)) if built else ""
        if differences:
            found[package] = f"{package.name} {package.version} was built for {differences}"
    if found:
        evidence = {"wheels": [package.file or package.version for package in found], **_names(found)}
        sure = Confidence.CONFIRMED if any(package.file for package in found) else Confidence.LIKELY
        packages = ("torch", *evidence["packages"])
        yield EXTENSION.found("; ".join(found.values()), evidence, confidence=sure, packages=packages)


def built_for(name: str) -> Built | None:
    """What the name of a wheel, or a version, contains.

    >>> built_for("flash_attn-2.7.4+cu12torch2.6cxx11abiFALSE-cp312-cp312-linux_x86_64.whl")
    Built(torch=(2, 6), cuda_major=12, new_abi=False)
    """
    tag = TAG.search(name)
    if tag:
        major, minor = map(int, tag["torch"].split("."))
        new_abi = tag["abi"].upper() == "TRUE" if tag["abi"] else None
        return Built((major, minor), int(tag["cuda"]) if tag["cuda"] else None, new_abi)
    tag = PYG_TAG.search(name)
    return Built((int(tag["major"]), int(tag["minor"])), int(tag["cuda"]), None) if tag else None


def _differences(facts: Facts, built: Built) -> Iterator[str]:
    version, cuda = Version(_torch_version(facts)), facts.python.torch_cuda
    if built.torch != version.release[:2]:
        yield f"torch {built.torch[0]}.{built.torch[1]} (torch is {version})"
    if cuda and built.cuda_major and built.cuda_major != int(cuda.split(".")[0]):
        yield f"CUDA {built.cuda_major} (torch has {cuda})"
    new_abi = _new_abi(version, cuda)
    if built.torch == version.release[:2] and None not in (built.new_abi, new_abi) and built.new_abi is not new_abi:
        yield f"the {'new' if built.new_abi else 'old'} C++ ABI (torch {version} has the {'new' if new_abi else 'old'} one)"


def _new_abi(version: Version, cuda: str | None) -> bool | None:
    """Whether a wheel of pytorch.org has the C++11 ABI: all since 2.7, of 2.6 only cu126; None for other builds."""
    if version.is_prerelease or not (version.local or "").startswith("cu"):
        return None
    return version.release >= (2, 7) or (version.release[:2] == (2, 6) and cuda == "12.6")


def summary(facts: Facts) -> str:
    names = [package for name in (*COMPANIONS, *TRITON) if (package := facts.python.package(name))]
    return "all match torch " + _torch_version(facts) + "".join(f", {one.name} {one.version}" for one in names)


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(MISMATCH, EXTENSION, OTHER_TRITON),
    needs=("torch",),
    tags=("pytorch",),
)
