"""Ninja is there to build PyTorch's C++ and CUDA extensions.

What it means
torch.utils.cpp_extension builds with Ninja. Without it load() and load_inline() stop ("Ninja is required to load C++
extensions"), and setup.py compiles one file at a time, which takes an hour where minutes would do.

How it is judged
The program ninja is on PATH. Only where PyTorch and nvcc are installed: without nvcc nobody builds CUDA extensions here.

Known exceptions
The Python package ninja counts too: its program is beside Python, and on PATH once the environment is activated.

References
https://docs.pytorch.org/docs/stable/cpp_extension.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

MISSING = Problem(
    id="ninja-missing",
    title="Ninja is missing, with which PyTorch builds its extensions",
    why="Extensions that are compiled while a program runs need it, and flash-attn and others take many times longer without.",
    action=Action.INSTALL,
    status=Status.WARN,
    latent=True,
    fixes=(Fix("Install it beside PyTorch", "<python> -m pip install ninja", verify="ninja --version"),),
    references=("https://docs.pytorch.org/docs/stable/cpp_extension.html",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not (facts.python.package("torch") and facts.toolchain.nvcc):
        raise Skip("PyTorch's extensions are built only where both PyTorch and nvcc are")
    if "ninja" not in facts.toolchain.programs and facts.python.package("ninja") is None:
        yield MISSING.found(f"no ninja on PATH, beside {facts.toolchain.nvcc.path}")


def summary(facts: Facts) -> str:
    program = facts.toolchain.tool("ninja")
    return program.path if program else "the Python package ninja"


CHECK = Check(judge=judge, summary=summary, area="toolchain", problems=(MISSING,))
