"""Whether the assembler (ptxas) that Triton includes supports the GPUs of this machine.

https://github.com/triton-lang/triton/issues/8539
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.knowledge import wheels
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip, Status

VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
COMPILES = "<python> -c 'import torch; print(torch.compile(lambda x: x + 1)(torch.ones(2, device=\"cuda\")))'"
USE = Fix(
    "Make Triton use the ptxas of a toolkit that supports the GPU",
    "export TRITON_PTXAS_PATH=<ptxas> TRITON_PTXAS_BLACKWELL_PATH=<ptxas>",
    verify=COMPILES,
    where="shell",
)
NEWER = Fix(
    "Install a newer PyTorch with its Triton",
    "<python> -m pip install -U torch --index-url https://download.pytorch.org/whl/<index>",
    needs=("network",),
    verify=COMPILES,
    kind="install",
)
WITHOUT = Fix("Until then: disable torch.compile", "export TORCHDYNAMO_DISABLE=1", where="shell")

TOO_OLD = Problem(
    id="triton-too-old-for-gpu",
    title="Triton or its ptxas is too old for this GPU",
    why="Triton includes its own assembler (ptxas), which is of a CUDA release older than this GPU: 'Value sm_... is not "
    "defined'. PyTorch works until something is compiled: torch.compile, vLLM, Triton kernels.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(replace(USE, command=USE.command.replace("<ptxas>", "/usr/local/cuda/bin/ptxas")), NEWER, WITHOUT),
    references=("https://github.com/triton-lang/triton/issues/8539",),
)


def assembler(facts: Facts, triton: str) -> Iterator[Finding]:
    """One finding for all GPUs of the same kind."""
    for capability, name in _models(facts).items():
        taken, architecture = _taken(facts, triton, capability), knowledge.architecture(capability)
        if taken is None or architecture is None or taken[1] >= architecture.first_cuda:
            continue
        sm, needed = "sm_{}{}".format(*capability), "{}.{}".format(*architecture.first_cuda)
        other = _newer(facts, architecture.first_cuda)
        evidence = {"triton": triton, "sm": sm, "needs": needed, "ptxas": other, "index": _index(facts, capability)}
        fixes = ((USE,) if other else ()) + ((NEWER,) if evidence["index"] else ()) + (WITHOUT,)
        words = f"{taken[0]} is of CUDA {taken[1][0]}.{taken[1][1]}; {name} ({sm}) needs {needed} or newer"
        is_published = "+" not in triton or other_than_bundled(facts)
        sure = Confidence.CONFIRMED if is_published else Confidence.LIKELY
        found = replace(TOO_OLD, fixes=fixes).found(words, evidence, confidence=sure, packages=("triton",))
        yield replace(found, because="torch-missing-gpu-architecture")  # a PyTorch with code for the GPU installs its own Triton


def _models(facts: Facts) -> dict[tuple[int, int], str]:
    return known(lambda: {gpu.compute_capability: gpu.name for gpu in facts.nvml.reachable.values()}, {})


def other_than_bundled(facts: Facts) -> str | None:
    """The ptxas that a variable names."""
    return next((value for name in VARIABLES if (value := facts.environment.get(name))), None)


def _taken(facts: Facts, triton: str, capability: tuple[int, int]) -> tuple[str, tuple[int, int]] | None:
    """The ptxas that Triton uses, with its release; None if unknown."""
    named = other_than_bundled(facts)
    if named is None:
        release = wheels.assembler(triton, capability)
        return (f"the ptxas of Triton {triton}", release) if release else None
    folder = posixpath.dirname(named)
    beside = next((tool.version for tool in facts.toolchain.nvccs if folder in _folders(tool.path, tool.real_path)), None)
    return (named, (beside[0], beside[1])) if beside else None


def _newer(facts: Facts, first: tuple[int, int]) -> str | None:
    """The ptxas in the folder of an nvcc that supports the GPU."""
    fitting = (tool for tool in facts.toolchain.nvccs if tool.version and tool.version[:2] >= first)
    return next((posixpath.join(posixpath.dirname(tool.path), "ptxas") for tool in fitting), None)


def _folders(*paths: str) -> set[str]:
    return {posixpath.dirname(path) for path in paths}


def _index(facts: Facts, capability: tuple[int, int]) -> str | None:
    """The index of the newest PyTorch for this driver and GPU."""
    try:
        driver, machine = facts.nvml.driver_version, facts.system.architecture
    except Skip:
        return None
    newest = next(row for row in wheels.table().torch if row.variants_verified)
    return knowledge.variant_for_driver(newest.version, driver, capability, machine)
