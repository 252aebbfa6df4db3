"""This nvcc can compile for the GPUs of this machine.

What it means
Each CUDA release knows the GPU generations of its time. An older one does not know newer GPUs, and a newer one has dropped the
oldest: "nvcc fatal: Unsupported gpu architecture".

How it is judged
The compute capability of every GPU against the first and the last CUDA release that compiles for it, and the version of the
nvcc that a build takes.

Known exceptions
Programs that were built elsewhere are not concerned. A toolkit that is one release too old can build PTX for an older generation,
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
    "Build with it",
    "export CUDA_HOME=<toolkit> PATH=<toolkit>/bin:$PATH",
    verify="nvcc --list-gpu-code | grep <sm>",
    where="shell",
)
INSTALL = install_on(
    "Install a toolkit that knows this GPU, from NVIDIA's repository",
    recipe="toolkit <cuda>",
    debian="sudo apt install cuda-toolkit-<dashed>",
    rhel="sudo dnf install cuda-toolkit-<dashed>",
    suse="sudo zypper install cuda-toolkit-<dashed>",
    arch="sudo pacman -S cuda",
    other="sudo sh cuda_<cuda>*_linux.run --toolkit",
    conda="conda install -c nvidia cuda-toolkit=<cuda>",
)

TOO_OLD = Problem(
    id="nvcc-too-old-for-gpu",
    title="This nvcc is too old to compile for the GPU",
    why='The toolkit is from before this GPU generation. Builds that ask for it stop with "Unsupported gpu architecture", and '
    "those that do not make code that the driver must compile anew.",
    action=Action.INSTALL,
    fixes=(*INSTALL, USE),
    references=(MATRIX,),
    status=Status.WARN,
    latent=True,
)

DROPPED = Problem(
    id="nvcc-dropped-gpu",
    title="This nvcc no longer compiles for the GPU",
    why="The toolkit has dropped this GPU generation, and what it builds has no code for the GPU (error 209). The last release "
    "that compiles for it can be installed beside it.",
    action=Action.INSTALL,
    fixes=(*INSTALL, USE),
    references=(MATRIX,),
    status=Status.WARN,
    latent=True,
)


def judge(facts: Facts) -> Iterator[Finding]:
    nvcc = facts.toolchain.default_nvcc
    if nvcc is None or nvcc.version is None:
        raise Skip("there is no nvcc", Skip.NOT_INSTALLED)
    skip_conflict(facts)
    for capability, name in models(facts).items():
        yield from judge_model(facts, nvcc, nvcc.version[:2], capability, name)


def models(facts: Facts) -> dict[tuple[int, int], str]:
    return {gpu.compute_capability: gpu.name for gpu in facts.nvml.reachable.values()}


def judge_model(facts: Facts, nvcc: Tool, cuda: Version, capability: tuple[int, int], name: str) -> Iterator[Finding]:
    known = knowledge.architecture(capability)
    sm = "sm_{}{}".format(*capability)
    if known is None:
        raise Skip(f"which CUDA compiles for {name} ({sm}) is not known", Skip.NO_ANSWER)
    if cuda < known.first_cuda:
        what = f"{nvcc.path} is CUDA {dotted(cuda)}; {name} ({sm}) needs {dotted(known.first_cuda)} or newer"
        yield TOO_OLD.found(what, evidence(sm, wanted(facts, known.first_cuda)))
    elif known.last_cuda and cuda > known.last_cuda:
        what = f"{nvcc.path} is CUDA {dotted(cuda)}; {dotted(known.last_cuda)} was the last for {name} ({sm})"
        yield DROPPED.found(what, evidence(sm, known.last_cuda))


def wanted(facts: Facts, first: tuple[int, int]) -> tuple[int, int]:
    """PyTorch's own release where it knows the GPU, so that extensions of it can be built too."""
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
