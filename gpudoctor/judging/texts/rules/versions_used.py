"""Driver and libraries of a text: what is installed, or held back, against what runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.python import package
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

HELD = Problem(
    id="driver-package-held",
    title="A hold keeps one package of the driver at its old release",
    why="The package manager updated the rest of the driver, but not the package that is held. Kernel module and libraries must "
    "be of the same release, so the driver does not start, also after a reboot.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("Remove the hold, then update all packages of the driver together and reboot"),),
    references=(
        "https://manpages.debian.org/stable/apt/apt-mark.8.en.html",
        "https://en.opensuse.org/SDB:Zypper_usage",
        "https://dnf-plugins-core.readthedocs.io/en/latest/versionlock.html",
    ),
)
NO_ICD = Problem(
    id="opencl-icd-file-missing",
    title="OpenCL's file nvidia.icd is missing",
    why="OpenCL's loader reads /etc/OpenCL/vendors/*.icd to find drivers. NVIDIA's library is here, but no file there names it. "
    "In a container the toolkit adds the library, and the image has to bring the file.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Create the file (in a container, where root has no sudo: without sudo)",
            "sudo mkdir -p /etc/OpenCL/vendors && echo libnvidia-opencl.so.1 | sudo tee /etc/OpenCL/vendors/nvidia.icd",
            verify="clinfo -l",
            undo="sudo rm /etc/OpenCL/vendors/nvidia.icd",
            kind="set",
            needs=("root",),
        ),
        Fix(
            "Create it in the image, by a line in its Dockerfile: RUN mkdir -p /etc/OpenCL/vendors && "
            "echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd"
        ),
    ),
    references=("https://github.com/KhronosGroup/OpenCL-ICD-Loader", "https://gitlab.com/nvidia/container-images/opencl"),
)
PROBLEMS = (HELD, NO_ICD)

_DIFFERS = re.compile(r"Driver/library version mismatch|API mismatch|the client has the version")
_OF_MODULE = r"(?:kmod-|akmod-|xorg-x11-drv-)?(?:lib)?nvidia-[\w.+-]+|nvidia-open-driver-\S+|cuda-drivers\S*"
_LOCKS = {
    "zypper": re.compile(rf"^[ \t]*\d+\s*\|\s*(?P<name>{_OF_MODULE})\s*\|\s*package\b", re.MULTILINE),
    "apt": re.compile(
        rf"""
    \bshowhold\b[^\n]*\n(?:[a-z][\w.+:-]*\n){{0,40}}?(?P<name>{_OF_MODULE})[ \t]*$
    | ^hi\ +(?P<marked>{_OF_MODULE})[ :]
    """,
        re.MULTILINE | re.VERBOSE,
    ),
    "dnf": re.compile(
        rf"""
    \bversionlock(?:\ list)?\b[^\n]*\n(?:[^\n$#]*\n){{0,40}}?(?P<name>{_OF_MODULE}?)-(?:\d+:)?\d[\w.:+~-]*(?:\.\*)?[ \t]*$
    """,
        re.MULTILINE | re.VERBOSE,
    ),
    "pacman": re.compile(rf"^[ \t]*IgnorePkg\s*=(?:[^\n]*\s)?(?P<name>nvidia[\w-]*|{_OF_MODULE})", re.MULTILINE),
}
_UNLOCK = {
    "zypper": "sudo zypper removelock <package_name> && sudo zypper update",
    "apt": "sudo apt-mark unhold <package_name> && sudo apt update && sudo apt full-upgrade",
    "dnf": "sudo dnf versionlock delete <package_name> && sudo dnf upgrade --refresh",
}


def held(facts: Facts) -> Iterator[Finding]:
    """A lock names a package of the driver, whose parts are of two releases."""
    text = "\n".join(passages(facts))
    loaded, works = known(lambda: facts.driver.module_version), known(lambda: facts.nvml.driver_version)
    if not _DIFFERS.search(text) or (loaded and loaded == works and known(lambda: facts.nvml.count, 0)):
        return
    for tool, pattern in _LOCKS.items():
        found = pattern.search(text)
        if not found:
            continue
        name = next(name for name in found.groups() if name)
        fix = Fix(
            "Remove the hold, update all packages of the driver together, then reboot",
            _UNLOCK.get(tool, ""),
            verify="nvidia-smi",
            risk="disruptive",
            kind="install",
            reboot=tool in _UNLOCK,
            needs=("root", "network"),
        )
        by_hand = Fix(
            "Delete the package from IgnorePkg in /etc/pacman.conf, update all packages (sudo pacman -Syu), then reboot"
        )
        problem = replace(HELD, fixes=(fix if tool in _UNLOCK else by_hand,))
        words = f"{tool} holds {name} back, and the kernel module is not of the release of the libraries"
        yield problem.found(words, {"package_name": name}, confidence=Confidence.LIKELY)
        return


_OPEN = re.compile(
    r"""
    ^(?:ii\s+)? (?: kmod-nvidia-open[\w-]* | nvidia-(?:dkms|driver|kernel-source)-[\w-]*open | nvidia-open[\w-]* )
    (?: [\s:/,-] )
    | \bnvidia-kernel-open-dkms\b
    | \[ALPM\]\ (?:re)?(?:installed|upgraded)\ (?:linux\S*-)?nvidia-open(?:-dkms|-lts)?\ \(
    | Open\ Kernel\ Module
    | ^license:\s+Dual\ MIT/GPL
    """,
    re.MULTILINE | re.VERBOSE,
)
_NOT_OPEN = re.compile(
    r"""
    ^ii\s+nvidia-dkms-\d+\s
    | ^kmod-nvidia-(?:latest-dkms|dkms)
    | ^license:\s+NVIDIA\s*$
    | x86_64\ Kernel\ Module
    """,
    re.MULTILINE | re.VERBOSE,
)
_UNUSABLE = re.compile(
    r"""
    None\ of\ the\ NVIDIA\ devices\ were\ initialized | probe\ with\ driver\ nvidia\ failed\ with\ error
    | NVIDIA\ probe\ routine\ failed | No\ devices\ were\ found
    | could\ not\ insert\ 'nvidia\w*':\ No\ such\ device | couldn't\ communicate\ with\ the\ NVIDIA\ driver
    """,
    re.VERBOSE,
)
OLD = ("Maxwell", "Pascal", "Volta")


def open_module(facts: Facts) -> Iterator[Finding]:
    """Only the open kernel module is installed, which fails, and lspci lists GPUs without the processor that it needs."""
    text = "\n".join(passages(facts))
    gpus = known(lambda: facts.pci.gpus, ())
    kinds = {known(lambda gpu=gpu: gpu.generation) for gpu in gpus}  # type: ignore[misc]
    if not gpus or not kinds <= set(OLD) or not _OPEN.search(text) or _NOT_OPEN.search(text) or not _UNUSABLE.search(text):
        return
    if known(lambda: facts.nvml.count, 0):
        return
    words = f"{gpus[0].model} is of the generation {gpus[0].generation}, and only the open kernel module is installed"
    evidence = {"gpus": [gpu.address for gpu in gpus], "last_branch": 580}
    yield facts.problems["open-module-on-pre-turing"].found(words, evidence, confidence=Confidence.LIKELY)


_LOADED = re.compile(
    r"""
    Installed\ version:\ (?P<number>\d{4,5})\b
    | Loaded\ runtime\ CuDNN\ library:\ (?P<dotted>\d+\.\d+\.\d+)
    | found\ runtime\ version\ \((?P<tuple>\d+,\ \d+,\ \d+)\)
    """,
    re.VERBOSE,
)
_OF_CUDNN = re.compile(r"cudnn", re.IGNORECASE)
OTHER_CUDNN = "LD_LIBRARY_PATH puts an older cuDNN before the installed one"
WHY_OTHER_CUDNN = (
    "The loader searches the folders of LD_LIBRARY_PATH before those of the wheel, so programs run with the old cuDNN there, "
    "whatever pip installed."
)
WAYS_OF_CUDNN = (
    Fix(
        "Remove the folder from LD_LIBRARY_PATH, here and where it is set (~/.bashrc, a module, ENV of an image)",
        "export LD_LIBRARY_PATH=<without_it>",
        verify="echo $LD_LIBRARY_PATH",
        where="shell",
        kind="set",
    ),
)


def other_cudnn(facts: Facts) -> Iterator[Finding]:
    """The cuDNN that a program loaded is older than the installed wheel."""
    text = "\n".join(passages(facts))
    loaded = _LOADED.search(text)
    wheel = next((found for name in ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13") if (found := package(facts, name))), None)
    entries = known(lambda: facts.environment.library_path, ())
    if not (loaded and wheel and entries):
        return
    release, installed = _release(loaded), tuple(map(int, re.findall(r"\d+", wheel)[:3]))
    if release >= installed:
        return
    guilty = [entry for entry in entries if _OF_CUDNN.search(entry)] or list(entries)
    words = f"cuDNN {'.'.join(map(str, release))} was loaded, although the wheel is {wheel}; LD_LIBRARY_PATH has {guilty[0]}"
    rest = ":".join(entry for entry in entries if entry not in guilty)
    evidence = {"folder": guilty[0], "wheel_version": wheel, "without_it": rest or "''"}
    problem = facts.problems["cudnn-wrong-version-ld-library-path"]
    problem = replace(problem, title=OTHER_CUDNN, why=WHY_OTHER_CUDNN, fixes=WAYS_OF_CUDNN)
    yield problem.found(words, evidence, confidence=Confidence.LIKELY)


def _release(loaded: re.Match[str]) -> tuple[int, ...]:
    if number := loaded["number"]:
        value = int(number)
        return (
            (value // 10000, value // 100 % 100, value % 100)
            if value >= 10000
            else (value // 1000, value // 100 % 10, value % 100)
        )
    return tuple(map(int, re.findall(r"\d+", loaded["dotted"] or loaded["tuple"])))


_NO_FILES = re.compile(
    r"""
    \bls\b[^\n]*\s/etc/OpenCL/vendors/?[ \t]*\n
    (?:total\ \d+\n)? (?:d\S+\ [^\n]*\ \.{1,2}\n){0,2}
    (?!\S*\s*\S*\.icd) (?= \S*[$\#>] | \s*$ | \[ | \( )
    """,
    re.VERBOSE,
)
_MISSING = re.compile(r"/etc/OpenCL/vendors[^\n]*: No such file or directory")
_FILE = re.compile(r"nvidia[\w.-]*\.icd\b|^libnvidia-opencl\.so\.1[ \t]*$", re.MULTILINE)
_LIBRARY = re.compile(r"^[ \t]*libnvidia-opencl\.so\.1 \(", re.MULTILINE)
_NO_PLATFORM = re.compile(
    r"""
    Number\ of\ platforms\s+0\b
    | CL_PLATFORM_NOT_FOUND
    | clGetPlatformIDs[^\n]*-1001
    | No\ OpenCL\ platform
    """,
    re.IGNORECASE | re.VERBOSE,
)


def no_icd_file(facts: Facts) -> Iterator[Finding]:
    """No file names the library that is here: the folder is empty, or a container's was not shown."""
    text = "\n".join(passages(facts))
    if not (_LIBRARY.search(text) and _NO_PLATFORM.search(text)):
        return
    if _NO_FILES.search(text) or _MISSING.search(text):
        words = "/etc/OpenCL/vendors has no .icd file, and libnvidia-opencl.so.1 is installed"
        yield NO_ICD.found(words, confidence=Confidence.LIKELY)
    elif facts.shown.is_in_container and not _FILE.search(text):
        words = "libnvidia-opencl.so.1 is in the container, and OpenCL finds no platform"
        yield NO_ICD.found(words, confidence=Confidence.LIKELY)


RULES = (held, open_module, other_cudnn, no_icd_file)
