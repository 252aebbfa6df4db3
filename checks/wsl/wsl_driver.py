"""Inside WSL2, programs load the driver libraries that Windows provides, not those of a Linux driver.

What it means
Under WSL2 the driver is installed in Windows only. Windows provides /usr/lib/wsl/lib, whose libcuda and NVML talk to Windows. A
Linux driver that is also installed adds libraries with the same names. They look for a kernel module that WSL does not have.

How it is judged
The check looks for packages of a Linux driver, and for any libcuda.so.1 or libnvidia-ml.so.1 that is not from Windows. If the
loader picks such a library, nothing works (fail). If it still picks the one from Windows, the next ldconfig may change that
(warn). If Windows provides no NVIDIA libraries, its missing driver is the cause, and the Linux driver only becomes a problem
later (warn).

Known exceptions
A CUDA toolkit (cuda-toolkit-12-x) and the container toolkit contain no driver. ldconfig's "libcuda.so.1 is not a symbolic link"
is harmless: Windows ships plain copies. Linking with -lcuda fails only if libcuda.so is missing.

References
https://docs.nvidia.com/cuda/wsl-user-guide/index.html
https://github.com/microsoft/WSL/issues/5663
https://github.com/microsoft/WSL/issues/8587
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import APT_DRIVER, install_on, shut_down_wsl
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

GUIDE = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"
LOADED = ("libcuda.so.1", "libnvidia-ml.so.1")
SMI = "/usr/lib/wsl/lib/nvidia-smi -L"
RESTART = shut_down_wsl("Shut WSL down and start it again, so that Windows provides its libraries again", verify=SMI)
REMOVE_FILES = (
    Fix(
        "Remove these files, which no package owns (a .run installer may have added them)",
        "sudo rm -i <libraries> && sudo ldconfig",
        risk="destructive",
        verify=SMI,
        kind="set",
        needs=("root",),
    ),
    RESTART,
)

OUT_OF_PATH = Fix(
    "In this shell: leave their folder out of LD_LIBRARY_PATH, then correct the line that sets it",
    "export LD_LIBRARY_PATH=<library_path>",
    verify=SMI,
    where="shell",
)
IN_CONDA = (
    Fix("In a conda environment: remove cuda-compat", "conda remove cuda-compat", "disruptive", on=("conda",), kind="install"),
)

LINUX_DRIVER = Problem(
    id="wsl-linux-driver-installed",
    title="A Linux NVIDIA driver is installed inside WSL",
    why="Its libcuda and NVML hide those of the Windows driver, the only ones that can work here. The packages cuda, "
    "cuda-drivers and nvidia-driver-* install it; cuda-toolkit-* does not.",
    action=Action.FIX_CONFIG,
    fixes=(
        *install_on(
            "Remove the Linux driver and keep the toolkit",
            verify=SMI,
            risk="disruptive",
            debian=f"sudo apt purge '{APT_DRIVER}' && sudo ldconfig",
            rhel="sudo dnf remove 'nvidia-driver*' 'cuda-drivers*' '*kmod-nvidia*' '*nvidia-dkms*' && sudo ldconfig",
            suse="sudo zypper remove 'nvidia-driver*' 'nvidia-compute*' 'nvidia-open*' && sudo ldconfig",
            arch="sudo pacman -Rns nvidia-utils && sudo ldconfig",
        ),
        Fix(
            "Remove these files, if no package owns them",
            "sudo rm -i <libraries> && sudo ldconfig",
            risk="destructive",
            verify=SMI,
            kind="set",
            needs=("root",),
        ),
        shut_down_wsl("From Windows: shut WSL down, so that its libraries come back at the next start"),
    ),
    references=(GUIDE, "https://github.com/microsoft/WSL/issues/9166"),
)

NO_LINKER_NAME = Problem(
    id="wsl-libcuda-not-symlink",
    title="Linkers cannot find libcuda.so",
    why="Programs that link with -lcuda, as Triton does to compile kernels, look for libcuda.so. Only libcuda.so.1 exists, so "
    "linking fails with 'cannot find -lcuda'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Create the link in ~/.local/lib, and add that folder to LIBRARY_PATH (in ~/.bashrc)",
            "mkdir -p ~/.local/lib && ln -sf /usr/lib/wsl/lib/libcuda.so.1 ~/.local/lib/libcuda.so && "
            "echo 'export LIBRARY_PATH=$HOME/.local/lib:$LIBRARY_PATH' >> ~/.bashrc",
            verify="ls -l ~/.local/lib/libcuda.so",
            kind="set",
        ),
        shut_down_wsl("In Windows: update the driver, which restores its libcuda.so, then shut WSL down"),
    ),
    references=("https://github.com/microsoft/WSL/issues/5663", "https://github.com/microsoft/WSL/issues/8587"),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl != 2:
        raise Skip("this is not WSL2")
    if facts.container.engine:
        raise Skip("in a container, container-gpu-access judges this")
    packages, files = facts.wsl.linux_driver_packages, facts.wsl.linux_libraries
    taken = {name: found.path for name in LOADED if (found := facts.libraries.resolved(name)) and found.path in files}
    if packages or files:
        driver = linux_driver(packages, files, taken, facts.wsl.has_no_windows_driver)
        yield driver if packages else through_variable(facts, driver, taken)
    given = facts.wsl.library_directory
    if "libcuda.so.1" in given and "libcuda.so" not in given and facts.python.package("triton") and not has_linker_name(facts):
        yield NO_LINKER_NAME.found("Triton is installed, but libcuda.so is not in /usr/lib/wsl/lib or another library folder")


def linux_driver(packages: tuple[str, ...], files: tuple[str, ...], taken: dict[str, str], hides_nothing: bool) -> Finding:
    """If no packages are installed, the fix is to remove the files."""
    problem = LINUX_DRIVER if packages else replace(LINUX_DRIVER, fixes=REMOVE_FILES)
    what = f"packages {', '.join(packages)}" if packages else f"{', '.join(files)}"
    evidence = {"packages": packages, "libraries": files, "taken": taken}
    if hides_nothing:
        return replace(problem, status=Status.WARN).found(
            f"{what}; no effect yet, because Windows provides no driver libraries", evidence
        )
    if taken:
        return problem.found(f"{what}; the loader picks {', '.join(taken.values())}", evidence)
    return replace(problem, status=Status.WARN).found(f"{what}; the loader still picks the libraries from Windows", evidence)


def through_variable(facts: Facts, found: Finding, taken: dict[str, str]) -> Finding:
    """Files that are only found through LD_LIBRARY_PATH, such as conda's cuda-compat, need not be removed."""
    path = facts.environment.library_path
    kept = [entry for entry in path if not any(posixpath.dirname(file) == entry.rstrip("/") for file in taken.values())]
    if len(kept) == len(path):
        return found
    problem = replace(found.problem, fixes=(OUT_OF_PATH, *IN_CONDA, RESTART))
    return replace(found, problem=problem, evidence={**found.evidence, "library_path": ":".join(kept)})


def has_linker_name(facts: Facts) -> bool:
    named = (library for library in facts.libraries.all if library.soname == "libcuda.so")
    return any(not found.is_stub and not found.is_compat for found in named)


def summary(facts: Facts) -> str:
    return "the driver libraries are those from Windows"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(LINUX_DRIVER, NO_LINKER_NAME),
)
