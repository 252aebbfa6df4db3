"""PyTorch loads the NCCL that it was built for.

What it means
NCCL moves data between GPUs. PyTorch calls functions of the NCCL release that it was built for. An older release lacks some of
them, and the import fails with "undefined symbol: nccl...".

How it is judged
PyTorch's metadata names its NCCL wheel (nvidia-nccl-cu13==2.28.9); the installed one must not be older. LD_PRELOAD and
/etc/ld.so.preload must not put an older libnccl before it.

Known exceptions
A newer NCCL is compatible and often installed on purpose. An NCCL in LD_LIBRARY_PATH or in the system does no harm: PyTorch's
wheels search their own folders first. A PyTorch without an NCCL wheel has its own or uses the system's.

References
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.libraries import Preload
from gpudoctor.facts.packages import Package, oldest_of
from gpudoctor.judging.python.preloads import FORGET, without
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Unavailable

SHOW = "<python> -c 'import torch; print(torch.cuda.nccl.version())'"

SHADOWED = Problem(
    id="nccl-library-shadowed",
    title="An older, preloaded NCCL replaces PyTorch's",
    why="Libraries in LD_PRELOAD are loaded before everything else, so PyTorch calls an NCCL release older than the one it was "
    "built for. That release lacks functions and fixes that PyTorch relies on.",
    action=Action.FIX_CONFIG,
    fixes=FORGET,
)

NOT_AS_NEEDED = Problem(
    id="nccl-not-what-torch-needs",
    title="PyTorch lacks the NCCL that it was built for",
    why="Another package replaced the NCCL wheel with an older one, or the wheel was removed. 'import torch' fails with "
    "'undefined symbol: nccl...' or 'libnccl.so.2: cannot open shared object file'.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Install the NCCL release that PyTorch requires",
            command="<python> -m pip install <requirement>",
            needs=("network",),
            verify=SHOW,
            kind="install",
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    torch = facts.python.package("torch")
    if torch is None:
        raise Skip("PyTorch is not installed in this Python")
    pin = next((line for line in facts.python.requirements(torch) if line.name.startswith("nvidia-nccl-cu")), None)
    if pin is None:
        raise Skip("this PyTorch does not require an NCCL wheel")
    yield from wheel(facts, torch, pin)
    yield from preloaded(facts, oldest_of(pin))


def wheel(facts: Facts, torch: Package, pin: Requirement) -> Iterator[Finding]:
    wanted, package = oldest_of(pin), facts.python.package(pin.name)
    if package is not None and Version(package.version) >= wanted:
        return
    if package is None and _system_has(facts, wanted):
        return
    found = f"{package.version} is installed" if package else "it is not installed"
    yield NOT_AS_NEEDED.found(
        f"torch {torch.version} requires {pin.name} {wanted}; {found}",
        {"requirement": f"{pin.name}{pin.specifier}", "installed": package.version if package else None},
        packages=("torch", pin.name),
    )


def _system_has(facts: Facts, wanted: Version) -> bool:
    library = facts.libraries.resolved("libnccl.so.2")
    return library is not None and library.version is not None and Version(library.version) >= wanted


def preloaded(facts: Facts, wanted: Version) -> Iterator[Finding]:
    for preload in facts.libraries.preloads:
        if not re.match(r"libnccl\.so", preload.name):
            continue
        version = _version(facts, preload)
        if version < wanted:
            yield without(SHADOWED, preload).found(
                f"{preload.source} names {preload.entry}, which is NCCL {version}; PyTorch was built for {wanted}",
                {"library": preload.entry, "version": str(version), "without_it": ":".join(preload.others)},
            )


def _version(facts: Facts, preload: Preload) -> Version:
    """NCCL's version, from the real file's name or from the wheel that the file belongs to."""
    named = re.search(r"\.so\.(\d+\.[\d.]+)$", preload.library.real_path if preload.library else preload.entry)
    if named:
        return Version(named[1])
    for name, (package, *_) in facts.python.packages.items():
        if name.startswith("nvidia-nccl-cu") and preload.entry.startswith(package.location + "/"):
            return Version(package.version)
    raise Unavailable(f"the NCCL release of {preload.entry} could not be determined")


def summary(facts: Facts) -> str:
    found = {name: copies[0] for name, copies in facts.python.packages.items() if name.startswith("nvidia-nccl-cu")}
    return ", ".join(f"{name} {package.version}" for name, package in found.items()) + ", as PyTorch requires"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SHADOWED, NOT_AS_NEEDED),
    needs=("nvidia-wheel-mix",),
    tags=("multi-gpu", "nccl", "pytorch"),
)
