"""PyTorch loads the cuDNN that it was built for.

What it means
cuDNN is a small library that loads eight others by name while a program runs. All must come from one release, which must not be
older than the one that PyTorch was built for. Otherwise programs fail with "cuDNN version incompatibility", "Cannot load symbol
cudnnCreate..." or a crash.

How it is judged
PyTorch's metadata names its cuDNN wheel (nvidia-cudnn-cu13==9.19.0.56); the check compares it with the installed one. The wheels
find the first library without the loader's help, but its parts are searched in LD_LIBRARY_PATH first, so another cuDNN there is
mixed in. CTranslate2 (faster-whisper, WhisperX) before 4.5 needs cuDNN 8. cuDNN 9.11 and later requires compute capability 7.5.

Known exceptions
A system cuDNN that is not in LD_LIBRARY_PATH does no harm: the wheel's own folder is searched first. A PyTorch without a cuDNN
wheel (conda, NVIDIA's containers, from source) has its own or uses the system's.

References
https://github.com/m-bain/whisperX/issues/1297
https://github.com/OpenNMT/CTranslate2/issues/1826
https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.libraries import Library
from gpudoctor.facts.packages import Package, oldest_of
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status, for_each

SHOW = "<python> -c 'import torch; print(torch.backends.cudnn.version())'"
TURING, FIRST_WITHOUT_VOLTA = (7, 5), Version("9.11")
FIRST_CTRANSLATE2_WITH_9 = Version("4.5")

CLEAN_PATH = (
    Fix(
        "Remove the folder from LD_LIBRARY_PATH, here and where it is set (~/.bashrc, /etc/environment, ENV of an image)",
        command="export LD_LIBRARY_PATH=<without_it>",
        verify=SHOW,
        where="shell",
    ),
    Fix(
        "If another program needs it: put the wheel's folder first",
        command="export LD_LIBRARY_PATH=<wheel>:$LD_LIBRARY_PATH",
        verify=SHOW,
        where="shell",
    ),
)

SHADOWED = Problem(
    id="cudnn-wrong-version-ld-library-path",
    title="LD_LIBRARY_PATH mixes an older cuDNN into PyTorch's",
    why="The parts of cuDNN are searched in LD_LIBRARY_PATH before the wheel's folder, so PyTorch runs with parts of a release "
    "older than the one it was built for.",
    action=Action.FIX_CONFIG,
    fixes=CLEAN_PATH,
    references=("https://github.com/m-bain/whisperX/issues/1297",),
)

MIXED = Problem(
    id="cudnn-mixed-releases-ld-library-path",
    title="LD_LIBRARY_PATH mixes another cuDNN release into PyTorch's",
    why="The parts of cuDNN are searched in LD_LIBRARY_PATH before the wheel's folder, so parts of two releases run together. "
    "This combination is not tested; it can work, be slow or fail.",
    action=Action.FIX_CONFIG,
    fixes=CLEAN_PATH,
    references=("https://github.com/SYSTRAN/faster-whisper/issues/1182",),
    status=Status.WARN,
)

PINNED = Fix(
    "Install the cuDNN release that PyTorch requires",
    "<python> -m pip install <requirement>",
    needs=("network",),
    verify=SHOW,
    kind="install",
)

BOTH = Fix(
    "Install the cuDNN that PyTorch requires, and a CTranslate2 that works with it: the old one would lose its cuDNN 8",
    "<python> -m pip install --upgrade <requirement> 'ctranslate2>=4.5'",
    needs=("network",),
    verify=SHOW,
    kind="install",
)
OLDER_TORCH = Fix("If CTranslate2 must stay: give it a separate environment with cuDNN 8")

NOT_AS_NEEDED = Problem(
    id="cudnn-not-what-torch-needs",
    title="PyTorch lacks the cuDNN that it was built for",
    why="Another package replaced the cuDNN wheel with an older one, or the wheel was removed. PyTorch refuses a cuDNN older "
    "than the one it was compiled with.",
    action=Action.INSTALL,
    fixes=(PINNED,),
    references=("https://github.com/MahmoudAshraf97/whisper-diarization/issues/259",),
)

NEWER = Problem(
    id="cudnn-newer-than-torch-pin",
    title="The cuDNN wheel is newer than the one that PyTorch requires",
    why="Releases of one major version are intended to be compatible, and users upgrade for JAX or TensorFlow. PyTorch was not "
    "tested with this release.",
    action=Action.WATCH,
    fixes=(PINNED,),
    status=Status.WARN,
)

TOO_NEW_FOR_GPU = Problem(
    id="cudnn-dropped-this-gpu",
    title="The cuDNN wheel is too new for this GPU",
    why="cuDNN 9.11 dropped support for GPUs before Turing (compute capability 7.5). PyTorch refuses to use it on them.",
    action=Action.INSTALL,
    fixes=(PINNED,),
    references=("https://github.com/pytorch/pytorch/blob/main/RELEASE.md",),
)

CTRANSLATE2 = Problem(
    id="cudnn8-missing-for-old-ctranslate2",
    title="CTranslate2 needs cuDNN 8, which is not installed",
    why="CTranslate2 before 4.5 loads cuDNN 8, but newer PyTorch comes with cuDNN 9. The program aborts with 'Could not load "
    "library libcudnn_ops_infer.so.8'.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install a CTranslate2 that works with cuDNN 9",
            command="<python> -m pip install --upgrade 'ctranslate2>=4.5'",
            needs=("network",),
            verify="<python> -c 'import ctranslate2; print(ctranslate2.get_cuda_device_count())'",
            kind="install",
        ),
    ),
    references=("https://github.com/OpenNMT/CTranslate2/issues/1826",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from ctranslate2(facts)
    torch = facts.python.package("torch")
    if torch is None:
        raise Skip("PyTorch is not installed in this Python")
    pin = next((line for line in facts.python.requirements(torch) if line.name.startswith("nvidia-cudnn-cu")), None)
    if pin is None:
        raise Skip("this PyTorch does not require a cuDNN wheel")
    package = facts.python.package(pin.name)
    yield from wheel(facts, torch, pin, package)
    yield from library_path(facts, oldest_of(pin), package)


def ctranslate2(facts: Facts) -> Iterator[Finding]:
    package = facts.python.package("ctranslate2")
    if package is None or Version(package.version) >= FIRST_CTRANSLATE2_WITH_9:
        return
    if not facts.pci.gpus and not facts.system.wsl:  # on a CPU it works without cuDNN
        return
    if not any(library.soname.startswith("libcudnn_ops_infer.so.8") for library in facts.libraries.all):
        yield CTRANSLATE2.found(
            f"ctranslate2 {package.version} loads libcudnn_ops_infer.so.8, which was not found",
            {"ctranslate2": package.version},
            packages=("ctranslate2",),
        )


def wheel(facts: Facts, torch: Package, pin: Requirement, package: Package | None) -> Iterator[Finding]:
    wanted, evidence = oldest_of(pin), {"requirement": f"{pin.name}{pin.specifier}"}
    what = f"torch {torch.version} requires {pin.name} {wanted}"
    about = ("torch", pin.name)
    if package is None:
        if not _system_has(facts, wanted):
            yield NOT_AS_NEEDED.found(f"{what}, which is not installed", evidence, packages=about)
        return
    installed = Version(package.version)
    evidence["installed"] = package.version
    if installed.major != wanted.major or installed.release[:2] < wanted.release[:2]:
        yield not_as_needed(facts, wanted, installed, f"{what}; {installed} is installed", evidence, about)
    elif installed >= FIRST_WITHOUT_VOLTA > wanted:
        refused = list(for_each(facts.nvml.gpus, lambda gpu: too_new(gpu, installed, evidence)))
        yield from refused or [NEWER.found(f"{what}; {installed} is installed", evidence, packages=about)]
    elif installed.release[:2] > wanted.release[:2]:
        yield NEWER.found(f"{what}; {installed} is installed", evidence, packages=about)


def not_as_needed(
    facts: Facts, wanted: Version, installed: Version, words: str, evidence: dict[str, str], about: tuple[str, ...]
) -> Finding:
    """If an old CTranslate2 needs the installed cuDNN, both packages change together: PyTorch's cuDNN alone would break it."""
    other = facts.python.package("ctranslate2")
    if other and Version(other.version) < FIRST_CTRANSLATE2_WITH_9 and (installed.major, wanted.major) == (8, 9):
        problem = replace(NOT_AS_NEEDED, fixes=(BOTH, *NOT_AS_NEEDED.fixes[1:], OLDER_TORCH))
        evidence["ctranslate2"] = other.version
        return problem.found(f"{words}, which ctranslate2 {other.version} needs", evidence, packages=(*about, "ctranslate2"))
    return NOT_AS_NEEDED.found(words, evidence, packages=about)


def too_new(gpu: Gpu, installed: Version, evidence: dict[str, str]) -> Iterator[Finding]:
    if gpu.compute_capability < TURING:
        capability = "{}.{}".format(*gpu.compute_capability)
        message = f"cuDNN {installed} is installed; {gpu.name} has compute capability {capability}"
        yield TOO_NEW_FOR_GPU.found(message, {**evidence, "capability": capability}, gpu=gpu.index)


def _system_has(facts: Facts, wanted: Version) -> bool:
    library = facts.libraries.resolved(f"libcudnn.so.{wanted.major}")
    return library is not None and (library.release or Version("0")) >= Version(f"{wanted.major}.{wanted.minor}")


def library_path(facts: Facts, wanted: Version, package: Package | None) -> Iterator[Finding]:
    """Report the first cuDNN in LD_LIBRARY_PATH with the file names of PyTorch's, if it is not the wheel's."""
    if package is None:
        return
    named = re.compile(rf"libcudnn\w*\.so\.{wanted.major}")
    found = (one for one in facts.libraries.all if one.via == "LD_LIBRARY_PATH" and named.fullmatch(one.soname))
    library = next(found, None)
    if library is None or library.size is None or _is_the_wheels(facts, library, package):
        return
    version = library.release
    if version and version.release[:2] == wanted.release[:2]:
        return
    problem = SHADOWED if version and version.release[:2] < wanted.release[:2] else MIXED
    yield problem.found(
        f"LD_LIBRARY_PATH has cuDNN {version or 'of an unknown release'} in {library.directory}; PyTorch's is {package.version}",
        {
            "library": library.path,
            "without_it": facts.environment.library_path_without(library.index),
            "wheel": posixpath.join(package.location, "nvidia/cudnn/lib"),
        },
        confidence=Confidence.CONFIRMED if version else Confidence.LIKELY,
    )


def _is_the_wheels(facts: Facts, library: Library, package: Package) -> bool:
    """Whether this is the wheel's own file, or a file of the same size from another environment's wheel."""
    own = (one for one in facts.libraries.all if one.via == "wheel" and one.soname == library.soname)
    is_like_it = library.release is None and library.size in {one.size for one in own}
    return library.real_path.startswith(package.location + "/") or is_like_it


def summary(facts: Facts) -> str:
    found = {name: copies[0] for name, copies in facts.python.packages.items() if name.startswith("nvidia-cudnn-cu")}
    return ", ".join(f"{name} {package.version}" for name, package in found.items()) + ", as PyTorch requires"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SHADOWED, MIXED, NOT_AS_NEEDED, NEWER, TOO_NEW_FOR_GPU, CTRANSLATE2),
    needs=("nvidia-wheel-mix",),
    tags=("pytorch",),
)
