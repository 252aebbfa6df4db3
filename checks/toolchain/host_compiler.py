"""nvcc finds a host compiler that it accepts.

What it means
nvcc compiles only the part of a program that runs on the GPU and passes the rest to gcc or clang. Each CUDA release accepts these
up to a certain version, and distributions often ship newer ones: "unsupported GNU version".

How it is judged
gcc and g++ are on PATH. The major version of the compiler that nvcc uses (NVCC_CCBIN, CUDAHOSTCXX for CMake, else g++ on PATH) is
not newer than the newest version that this CUDA release accepts.

Known exceptions
Without nvcc on PATH, nothing is judged. nvcc --allow-unsupported-compiler accepts a newer compiler at your own risk: that flag in
NVCC_APPEND_FLAGS or NVCC_PREPEND_FLAGS counts as a deliberate choice.

References
https://docs.nvidia.com/cuda/cuda-installation-guide-linux/
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.builds import skip_conflict
from gpudoctor.facts.known import known
from gpudoctor.facts.versions import dotted
from gpudoctor.fixes.common import install_on
from gpudoctor.judging.python import run_time_builds
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, Unavailable

GUIDE = "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/"
CHOICES = ("NVCC_CCBIN", "CUDAHOSTCXX")
ALLOWED = "-allow-unsupported-compiler"

INSTALL = "Install the distribution's compilers"
MISSING = Problem(
    id="host-compiler-missing",
    title="nvcc is installed, but its C++ compiler is missing",
    why="nvcc passes the part of a program that runs on the processor to g++. Without g++, neither the smallest program nor "
    "extensions of PyTorch can be built.",
    action=Action.INSTALL,
    fixes=(
        *install_on(
            INSTALL,
            verify="g++ --version",
            debian="sudo apt install build-essential",
            rhel="sudo dnf install gcc-c++ make",
            suse="sudo zypper install gcc-c++ make",
            arch="sudo pacman -S base-devel",
        ),
        Fix(INSTALL, "conda install -c conda-forge gxx", verify="g++ --version", on=("other",), kind="install"),
    ),
    references=(GUIDE,),
    status=Status.WARN,
    latent=True,
)

TOO_NEW = Problem(
    id="host-gcc-too-new",
    title="The host compiler is newer than this nvcc accepts",
    why='nvcc stops with "unsupported GNU version": each release accepts compilers only up to a certain version.',
    action=Action.INSTALL,
    fixes=(
        *install_on(
            "Install an older compiler alongside",
            debian="sudo apt install g++-<newest>",
            rhel="sudo dnf install gcc<newest>-c++ || sudo dnf install gcc-toolset-<newest>-gcc-c++",
            suse="sudo zypper install gcc<newest>-c++",
            arch="sudo pacman -S gcc<newest>",
            conda="conda install -c conda-forge gxx=<newest>",
            undos={"debian": "sudo apt remove g++-<newest>"},
        ),
        Fix("Make nvcc and CMake use it", "export NVCC_CCBIN=<older> CUDAHOSTCXX=<older>", where="shell"),
        Fix("Install a newer CUDA toolkit that accepts it"),
    ),
    references=(GUIDE,),
    status=Status.WARN,
    latent=True,
)


ENTERPRISE = ("rhel", "rocky", "almalinux", "ol", "centos")  # gcc-toolset has their newer and older compilers
TOOLSET = Fix(
    "Install an older compiler alongside",
    "sudo dnf install gcc-toolset-<newest>-gcc-c++",
    on=("rhel",),
    kind="install",
    needs=("root",),
)


class Host(NamedTuple):
    """The compiler that nvcc passes host code to; `chosen` is the variable that names it."""

    path: str
    version: int
    is_clang: bool
    chosen: str = ""


def judge(facts: Facts) -> Iterator[Finding]:
    nvcc = facts.toolchain.nvcc
    if nvcc is None or nvcc.version is None:
        raise Skip("nvcc is not on PATH", Skip.NOT_INSTALLED)
    skip_conflict(facts)
    missing = [name for name in ("gcc", "g++") if name not in facts.toolchain.programs]
    if "gcc" in missing and "clang" not in facts.toolchain.programs and is_missed_by_triton(facts):
        raise Skip("no compiler is installed, which the check triton judges", Skip.NOT_INSTALLED)
    if missing and not chosen(facts):
        yield MISSING.found(
            f"{nvcc.path} is installed, but {' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not on PATH",
            {"missing": missing},
        )
        return
    yield from judge_version(facts, nvcc.version[:2])


def is_missed_by_triton(facts: Facts) -> bool:
    return facts.python.package("triton") is not None and run_time_builds.of_triton(facts) is not None


def judge_version(facts: Facts, version: tuple[int, ...]) -> Iterator[Finding]:
    cuda = dotted(version)
    limits = knowledge.host_compiler((version[0], version[1]))
    if limits is None:
        raise Skip(f"the compilers that nvcc {cuda} accepts are unknown", Skip.NO_ANSWER)
    host = host_of(facts)
    newest = limits.clang if host.is_clang else limits.gcc
    flags = (facts.environment.get(name) or "" for name in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"))
    if host.version <= newest or any(ALLOWED in flag for flag in flags):
        return
    kind = "clang" if host.is_clang else "gcc"
    by = f" (by {host.chosen})" if host.chosen else ""
    fixes, older = ways_to(facts, limits.gcc)
    yield replace(TOO_NEW, fixes=fixes).found(
        f"{host.path}{by} is {kind} {host.version}; nvcc {cuda} accepts up to {newest}",
        {"compiler": host.path, "version": host.version, "newest": limits.gcc, "cuda": cuda, "older": older},
    )


def ways_to(facts: Facts, newest: int) -> tuple[tuple[Fix, ...], str]:
    """The fixes that install an older compiler, and its path; an installed one need not be installed again."""
    older, others = f"/usr/bin/g++-{newest}", TOO_NEW.fixes[-2:]
    if facts.system.distribution in ENTERPRISE:
        return (TOOLSET, *others), f"/opt/rh/gcc-toolset-{newest}/root/usr/bin/g++"
    if is_installed(facts, f"g++-{newest}"):
        return others, older
    return TOO_NEW.fixes, older


def is_installed(facts: Facts, name: str) -> bool:
    return known(lambda: any(package.name == name and package.state == "installed" for package in facts.driver.packages), False)


def chosen(facts: Facts) -> tuple[str, str] | None:
    """The first variable that names a host compiler, and its value."""
    return next(((name, value) for name in CHOICES if (value := facts.environment.get(name))), None)


def host_of(facts: Facts) -> Host:
    choice = chosen(facts)
    if choice is None:
        path, variable = facts.toolchain.programs["g++"][0], ""
    else:
        variable, path = choice
    name = posixpath.basename(path)
    tool = facts.toolchain.program_at(path) or facts.toolchain.tool(name)
    named = re.search(r"-(\d+)$", name)  # g++-12
    if tool and tool.version and path in (tool.path, name):
        version = tool.version[0]
    elif named:
        version = int(named[1])
    else:
        raise Unavailable(f"the version of {path} is unknown")
    return Host(path, version, "clang" in name, variable)


def summary(facts: Facts) -> str:
    host = host_of(facts)
    return f"{host.path} {host.version}"


CHECK = Check(judge=judge, summary=summary, problems=(MISSING, TOO_NEW))
