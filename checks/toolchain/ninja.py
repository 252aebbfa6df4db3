"""Ninja is there to build PyTorch's C++ and CUDA extensions.

What it means
torch.utils.cpp_extension builds with Ninja. Without it, load() and load_inline() fail ("Ninja is required to load C++
extensions"), and setup.py compiles one file at a time, which takes an hour instead of minutes.

How it is judged
The program ninja is on PATH. The check runs only if PyTorch and nvcc are installed: without nvcc, no CUDA extensions are built
here. A missing Ninja is reported if an installed package builds at run time (DeepSpeed, FlashInfer, gsplat ...), if a variable
for builds is set (TORCH_CUDA_ARCH_LIST, MAX_JOBS), or if a build has failed because of it.

Known exceptions
The Python package ninja counts too: its program is in the same folder as Python, and on PATH once the environment is activated.
Most machines with nvcc never build an extension and do not need Ninja.

References
https://docs.pytorch.org/docs/stable/cpp_extension.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.python import run_time_builds
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

MISSING = Problem(
    id="ninja-missing",
    title="Ninja is missing; PyTorch needs it to build extensions",
    why="Extensions that are compiled at run time require Ninja; flash-attn and others take many times longer to build without "
    "it.",
    action=Action.INSTALL,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix("Install it in PyTorch's environment", "<python> -m pip install ninja", verify="ninja --version", kind="install"),
    ),
    references=("https://docs.pytorch.org/docs/stable/cpp_extension.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not (facts.python.package("torch") and facts.toolchain.nvcc):
        raise Skip("PyTorch's extensions can be built only if both PyTorch and nvcc are installed")
    if "ninja" not in facts.toolchain.programs and facts.python.package("ninja") is None:
        missing = MISSING.found(f"ninja is not on PATH, but {facts.toolchain.nvcc.path} is installed")
        yield run_time_builds.wanted_by(run_time_builds.of_extensions(facts), missing)


def summary(facts: Facts) -> str:
    program = facts.toolchain.tool("ninja")
    if program:
        return program.path
    absent = "Ninja is not installed, but nothing here builds extensions"
    return "the Python package ninja" if facts.python.package("ninja") else absent


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(MISSING,),
    tags=("pytorch",),
)
