"""Builds use one CUDA toolkit: nvcc on PATH, CUDA_HOME and /usr/local/cuda agree.

What it means
A build finds a toolkit in several ways: nvcc on PATH, CUDA_HOME or CUDA_PATH, /usr/local/cuda. If these point to different
releases, the compiler of one is mixed with the headers and libraries of another.

How it is judged
CUDA_HOME and CUDA_PATH must point to a folder with a toolkit. Its release is compared with that of the first nvcc on PATH. If
neither variable is set, nvcc is compared with /usr/local/cuda.

Known exceptions
Any number of toolkits may be installed side by side. If a variable and PATH agree, that is a deliberate choice, and
/usr/local/cuda does not matter. The same holds for an nvcc of the conda environment or of the virtual environment.

References
https://github.com/cupy/cupy/blob/main/docs/source/install.rst
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.builds import DEFAULT, Conflict, conflict, homes, toolkit_version
from gpudoctor.facts.versions import dotted
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

PACKAGED = "/usr/bin/nvcc"
FILES = "~/.bashrc ~/.profile ~/.zshrc /etc/environment /etc/profile.d/*.sh"

INVALID_HOME = Problem(
    id="cuda-home-invalid",
    title="CUDA_HOME or CUDA_PATH does not point to a CUDA toolkit",
    why="Builds use the variable and fail with files that are not found, even if a toolkit is on PATH. The variable is left "
    "over from a toolkit that was removed, or was set for another machine.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "In this shell: unset it, so that builds use PATH and /usr/local/cuda",
            "unset <variable>",
            verify="printenv <variable> || echo unset",
            where="shell",
        ),
        look(
            "Permanently: find the line that sets it",
            f"grep -sn <variable> {FILES} || echo 'in none of these files'",
            on=("host", "wsl2"),
        ),
        Fix("In a container: correct ENV in the Dockerfile", on=("container",)),
        look("List the installed toolkits", "ls -d /usr/local/cuda*"),
    ),
    status=Status.WARN,
    latent=True,
)

USE = Fix(
    "Use one toolkit everywhere, here and in the file that sets the variables",
    "export CUDA_HOME=<toolkit> PATH=<toolkit>/bin:$PATH",
    verify="echo $CUDA_HOME; command -v nvcc",
    where="shell",
)
REMOVE = Fix(
    "Remove the distribution's old nvcc",
    "sudo apt remove nvidia-cuda-toolkit",
    "disruptive",
    on=("debian",),
    kind="install",
    needs=("root",),
    undo="sudo apt install nvidia-cuda-toolkit",
)
CHOOSE = Fix(
    "Switch /usr/local/cuda to the other toolkit",
    "sudo update-alternatives --config cuda",
    on=("debian", "rhel", "suse"),
    needs=("root",),
)

DISAGREE = Problem(
    id="multiple-cuda-toolkits-path",
    title="PATH and CUDA_HOME or /usr/local/cuda select different CUDA toolkits",
    why="Builds then mix the compiler of one release with the headers and libraries of another. An nvcc in /usr/bin is the "
    "distribution's own, older package, which Ubuntu suggests if nvcc is not found.",
    action=Action.FIX_CONFIG,
    fixes=(USE, REMOVE, CHOOSE),
    references=("https://github.com/cupy/cupy/blob/main/docs/source/install.rst",),
    status=Status.WARN,
    latent=True,
)


def judge(facts: Facts) -> Iterator[Finding]:
    variables = homes(facts)
    if not (facts.toolchain.nvcc or variables or facts.toolchain.toolkits):
        raise Skip("no CUDA toolkit is installed", Skip.NOT_INSTALLED)
    for variable, path in variables.items():
        yield from judge_home(facts, variable, path)
    found = conflict(facts)
    if found:
        yield disagree(found)


def judge_home(facts: Facts, variable: str, path: str) -> Iterator[Finding]:
    root = facts.toolchain.root_of(path)
    if root is None:
        yield INVALID_HOME.found(f"{variable} points to {path}, which does not exist", {"variable": variable, "value": path})
    elif toolkit_version(facts, root) is None and not has_nvcc(facts, root):
        yield INVALID_HOME.found(
            f"{variable} points to {path}, which contains no CUDA toolkit", {"variable": variable, "value": path}
        )


def disagree(found: Conflict) -> Finding:
    nvcc, other = dotted(found.nvcc.version or ()), dotted(found.version)
    is_packaged, is_default = found.nvcc.path == PACKAGED, found.name == DEFAULT
    fixes = (USE, *([REMOVE] if is_packaged else []), *([CHOOSE] if is_default and not is_packaged else []))
    return replace(DISAGREE, fixes=fixes).found(
        f"nvcc on PATH ({found.nvcc.path}) is {nvcc}; {found.name} points to {other} ({found.root})",
        {"nvcc": found.nvcc.path, "nvcc_version": nvcc, "toolkit": found.root, "toolkit_version": other},
    )


def has_nvcc(facts: Facts, root: str) -> bool:
    return any(tool.real_path.startswith(root + "/") for tool in facts.toolchain.nvccs)


def summary(facts: Facts) -> str:
    nvcc, count = facts.toolchain.default_nvcc, len(facts.toolchain.toolkits)
    what = f"nvcc {dotted(nvcc.version)}" if nvcc and nvcc.version else "no nvcc"
    return f"{what}, {count} {'toolkit' if count == 1 else 'toolkits'}"


CHECK = Check(judge=judge, summary=summary, problems=(INVALID_HOME, DISAGREE))
