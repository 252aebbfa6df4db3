"""Ninja is there to build PyTorch's C++ and CUDA extensions.

What it means
torch.utils.cpp_extension builds with Ninja. Without it load() and load_inline() stop ("Ninja is required to load C++
extensions"), and setup.py compiles one file at a time, which takes an hour where minutes would do.

How it is judged
The program ninja is on PATH. Only where PyTorch and nvcc are installed: without nvcc nobody builds CUDA extensions here. It
is told where a package that builds while it runs is installed (DeepSpeed, FlashInfer, gsplat ...) or a variable for builds is
set (TORCH_CUDA_ARCH_LIST, MAX_JOBS), or where a build was seen to fail for it.

Known exceptions
The Python package ninja counts too: its program is beside Python, and on PATH once the environment is activated. Most machines
with nvcc never build an extension, and lack nothing without Ninja.

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
    title="Ninja is missing, with which PyTorch builds its extensions",
    why="Extensions that are compiled while a program runs need it, and flash-attn and others take many times longer without.",
    action=Action.INSTALL,
    status=Status.WARN,
    latent=True,
    fixes=(Fix("Install it beside PyTorch", "<python> -m pip install ninja", verify="ninja --version", kind="install"),),
    references=("https://docs.pytorch.org/docs/stable/cpp_extension.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not (facts.python.package("torch") and facts.toolchain.nvcc):
        raise Skip("PyTorch's extensions are built only where both PyTorch and nvcc are")
    if "ninja" not in facts.toolchain.programs and facts.python.package("ninja") is None:
        missing = MISSING.found(f"no ninja on PATH, beside {facts.toolchain.nvcc.path}")
        yield run_time_builds.wanted_by(run_time_builds.of_extensions(facts), missing)


def summary(facts: Facts) -> str:
    program = facts.toolchain.tool("ninja")
    if program:
        return program.path
    return "the Python package ninja" if facts.python.package("ninja") else "no Ninja, and nothing here builds extensions"


CHECK = Check(judge=judge, summary=summary, problems=(MISSING,))
