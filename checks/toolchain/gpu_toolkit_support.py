"""This nvcc can compile for the GPUs of this machine.

What it means
Each CUDA release supports the GPU generations of its time. An older release does not support newer GPUs, and a newer release has
dropped the oldest: "nvcc fatal: Unsupported gpu architecture".

How it is judged
The version of the nvcc that a build uses must lie between the first and the last CUDA release that compile for the compute
capability of each GPU.

Known exceptions
Programs that were built elsewhere are not affected. A toolkit that is one release too old can build PTX for an older generation,
which the driver compiles for the GPU when the program starts.

References
https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.builds import skip_conflict
from gpudoctor.facts.toolchain import Tool, Version
from gpudoctor.facts.versions import dotted
from gpudoctor.fixes.common import install_on
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

MATRIX = "https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"
USE = Fix(
    "Use that toolkit for builds",
    "export CUDA_HOME=<toolkit> PATH=<toolkit>/bin:$PATH",
    verify="nvcc --list-gpu-code | grep <sm>",
    where="shell",
)
INSTALL = install_on(
    "Install a toolkit that supports this GPU, from NVIDIA's repository",
    recipe="toolkit <cuda>",
    debian="sudo apt install cuda-toolkit-<dashed>",
    rhel="sudo dnf install cuda-toolkit-<dashed>",
    suse="sudo zypper install cuda-toolkit-<dashed>",
    arch="sudo pacman -S cuda",
    other="sudo sh cuda_<cuda>*_linux.run --toolkit",
    conda="conda install -c nvidia cuda-toolkit=<cuda>",
    undos={
        "debian": "sudo apt remove cuda-toolkit-<dashed>",
        "rhel": "sudo dnf remove cuda-toolkit-<dashed>",
        "suse": "sudo zypper remove cuda-toolkit-<dashed>",
    },
)

TOO_OLD = Problem(
    id="nvcc-too-old-for-gpu",
    title="This nvcc is too old to compile for the GPU",
    why='The toolkit is older than this GPU generation. Builds that target this GPU fail with "Unsupported gpu architecture". '
    "Other builds produce code that the driver must compile again.",
    action=Action.INSTALL,
    fixes=(*INSTALL, USE),
    references=(MATRIX,),
    status=Status.WARN,
    latent=True,
)

DROPPED = Problem(
    id="nvcc-dropped-gpu",
    title="This nvcc no longer compiles for the GPU",
    why="The toolkit has dropped this GPU generation, and its builds contain no code for the GPU (error 209). The last release "
    "that supports it can be installed alongside.",
    action=Action.INSTALL,
    fixes=(*INSTALL, USE),
    references=(MATRIX,),
    status=Status.WARN,
    latent=True,
)


def judge(facts: Facts) -> Iterator[Finding]:
    nvcc = facts.toolchain.default_nvcc
    if nvcc is None or nvcc.version is None:
        raise Skip("nvcc is not installed", Skip.NOT_INSTALLED)
    skip_conflict(facts)
    for capability, name in models(facts).items():
        yield from judge_model(facts, nvcc, nvcc.version[:2], capability, name)


def models(facts: Facts) -> dict[tuple[int, int], str]:
    return {gpu.compute_capability: gpu.name for gpu in facts.nvml.reachable.values()}


def judge_model(facts: Facts, nvcc: Tool, cuda: Version, capability: tuple[int, int], name: str) -> Iterator[Finding]:
    known = knowledge.architecture(capability)
    sm = "sm_{}{}".format(*capability)
    if known is None:
        raise Skip(f"the CUDA release that compiles for {name} ({sm}) is unknown", Skip.NO_ANSWER)
    if cuda < known.first_cuda:
        what = f"{nvcc.path} is CUDA {dotted(cuda)}; {name} ({sm}) needs {dotted(known.first_cuda)} or newer"
        yield TOO_OLD.found(what, evidence(sm, wanted(facts, known.first_cuda)))
    elif known.last_cuda and cuda > known.last_cuda:
        what = f"{nvcc.path} is CUDA {dotted(cuda)}; the last release for {name} ({sm}) is {dotted(known.last_cuda)}"
        yield DROPPED.found(what, evidence(sm, known.last_cuda))


def wanted(facts: Facts, first: tuple[int, int]) -> tuple[int, int]:
    """PyTorch's CUDA release if it supports the GPU, so that extensions of PyTorch can be built too."""
    torch = facts.python.torch_cuda if facts.python.package("torch") else None
    major, minor = map(int, (torch or "0.0").split(".")[:2])
    return max(first, (major, minor))


def evidence(sm: str, cuda: tuple[int, int]) -> dict[str, str]:
    return {
        "sm": sm,
        "cuda": dotted(cuda),
        "dashed": dotted(cuda).replace(".", "-"),
        "toolkit": f"/usr/local/cuda-{dotted(cuda)}",
    }


def summary(facts: Facts) -> str:
    nvcc = facts.toolchain.default_nvcc
    names = ", ".join("sm_{}{}".format(*capability) for capability in models(facts))
    return f"nvcc {dotted(nvcc.version)} compiles for {names}" if nvcc and nvcc.version else names


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(TOO_OLD, DROPPED),
    needs=("nvml",),
)
