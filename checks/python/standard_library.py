"""This Python has ctypes, with which programs load CUDA's libraries.

What it means
PyTorch, CuPy, Numba, Triton and NVIDIA's bindings load libraries with the standard module ctypes. Its compiled part, _ctypes,
is missing in a Python that was compiled on a machine without the headers of libffi (pyenv, asdf, a build from source), and in
minimal packages such as python3-minimal. Each import then fails with "No module named '_ctypes'".

How it is judged
The examined Python finds the module _ctypes, or does not.

Known exceptions
Such a Python cannot ask NVML and CUDA either, so the checks that need their answers do not run.

References
https://github.com/pyenv/pyenv/wiki#suggested-build-environment
https://docs.python.org/3/library/ctypes.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import install_on
from gpudoctor.model import Action, Check, Finding, Fix, Problem

NO_CTYPES = Problem(
    id="python-without-ctypes",
    title="This Python was built without ctypes, which GPU packages need",
    why="Its module _ctypes is missing: libffi's headers were not there when this Python was compiled, or only a minimal part of "
    "it is installed. PyTorch, CuPy, Numba and NVIDIA's bindings fail at import.",
    action=Action.INSTALL,
    fixes=(
        *install_on(
            "Install libffi's headers, then compile this Python again (for pyenv: pyenv install --force VERSION)",
            debian="sudo apt install libffi-dev",
            rhel="sudo dnf install libffi-devel",
            suse="sudo zypper install libffi-devel",
            arch="sudo pacman -S libffi",
            verify="<python> -c 'import ctypes'",
        ),
        *install_on(
            "If it is the distribution's minimal Python: install all of it",
            debian="sudo apt install python3",
            rhel="sudo dnf install python3",
            verify="<python> -c 'import ctypes'",
        ),
        Fix("Use a Python that is complete, such as one of uv", "uv python install 3.12", needs=("network",), kind="install"),
    ),
    references=("https://github.com/pyenv/pyenv/wiki#suggested-build-environment",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.python.has_ctypes:
        version = ".".join(map(str, facts.python.version))
        yield NO_CTYPES.found(f"{facts.python.executable} ({version}) has no module _ctypes", {"version": version})


def summary(facts: Facts) -> str:
    return "ctypes is there"


CHECK = Check(judge=judge, summary=summary, problems=(NO_CTYPES,))
