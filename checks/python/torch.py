"""PyTorch was built with CUDA, and for this GPU.

What it means
A PyTorch wheel is built for one CUDA release and contains machine code for a list of GPU generations. A CPU-only wheel finds no
GPU at all. A wheel without code for this GPU fails at the first kernel with "no kernel image is available for execution on the
device".

How it is judged
torch/version.py contains the CUDA release of the build. The GPU generations in the wheels of pytorch.org are known and are
compared with the compute capability of every GPU: machine code runs on its own major version from its minor version on, PTX on
anything newer.

Known exceptions
A machine without an NVIDIA GPU needs no CUDA build. If CuPy, JAX, TensorFlow, Numba or RAPIDS is installed with CUDA, a CPU-only
PyTorch may be intended and is only a warning, unless another installed package needs PyTorch on the GPU (vllm, xformers,
flash-attn ...). For other builds (conda, NVIDIA's containers, from source) the generations cannot be known without importing
them.

References
https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging.containers.access import is_without_gpus_on_purpose
from gpudoctor.judging.python import gpu_packages, other_torch, torch_builds
from gpudoctor.judging.python.torch_builds import INDEX
from gpudoctor.judging.texts.rules.said import names_gpu
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, Unavailable, for_each

RELEASES = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"
PUBLISHED = re.compile(r"\d+\.\d+\.\d+\+cu\d+")
ON_ARM = re.compile(r"\b(?:GH200|GB\d+|Orin|Thor|Xavier)\b")  # GPUs of boards whose processor is not an x86

INSTALL = (
    "<python> -m pip uninstall -y torch torchvision torchaudio && "
    "<python> -m pip install torch==<version> torchvision torchaudio --index-url <index>"
)
CONDA_INSTALL = Fix(
    "If conda installed PyTorch: let conda choose a build with CUDA",
    command="conda install -c conda-forge pytorch-gpu",
    needs=("network",),
    verify="<python> -c 'import torch; print(torch.cuda.is_available())'",
    on=("conda",),
    kind="install",
)

OF_PYTORCH_CHANNEL = Fix(
    "Remove cpuonly, which excludes all other builds, and let conda install the build with CUDA of the same release",
    command="conda remove cpuonly && conda install -c pytorch -c nvidia -c conda-forge 'pytorch=<installed>=*cuda*'",
    needs=("network",),
    verify="<python> -c 'import torch; print(torch.cuda.is_available())'",
    on=("conda",),
    kind="install",
)

CPU_ONLY = Problem(
    id="torch-cpu-only-wheel",
    title="This PyTorch was built without CUDA",
    why="A build for CPUs (or for another vendor's GPUs) was installed: from its index, from a lock file, or as a requirement "
    "of another package. It cannot use an NVIDIA GPU, whatever the driver is.",
    action=Action.INSTALL,
    fixes=(
        CONDA_INSTALL,
        Fix(
            "Install the build for this driver and GPU",
            command=INSTALL,
            needs=("network",),
            verify="<python> -c 'import torch; print(torch.cuda.is_available())'",
            kind="install",
        ),
    ),
    references=("https://github.com/resemble-ai/chatterbox/issues/269",),
)

USE_OTHER = Fix(
    "Leave the working environment as it is, and start the program, or the notebook's kernel, with its Python",
    "<python> -m pip install ipykernel && <python> -m ipykernel install --user --name gpu",
    verify="jupyter kernelspec list",
    undo="jupyter kernelspec uninstall -y gpu",
    kind="install",
    needs=("network",),
)
WORKS = re.compile(r"(?m)\b\d+\.\d+\.\d+\+cu\d+[ ,]+(?:\d+\.\d+[ ,]+)?True\b")
MEANT = Fix("If PyTorch is meant to use only the CPU here: leave it as it is")

MISSING_ARCHITECTURE = Problem(
    id="torch-missing-gpu-architecture",
    title="This PyTorch has no machine code for the GPU",
    why="A wheel contains machine code for a list of GPU generations, and this GPU's generation is not in it. The first kernel "
    "fails with 'no kernel image is available for execution on the device'.",
    action=Action.INSTALL,
    fixes=(
        CONDA_INSTALL,
        Fix(
            "Install a build that supports this GPU and this driver",
            command=INSTALL,
            needs=("network",),
            verify="<python> -c 'import torch; print(torch.ones(2, device=\"cuda\") + 1)'",
            kind="install",
        ),
    ),
    references=(RELEASES,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.python.package("torch") is None:
        raise Skip("PyTorch is not installed in this Python")
    if not names_gpu(facts) and not facts.nvml.reaches_any and not facts.pci.gpus and not facts.system.wsl:
        raise Skip("no NVIDIA GPU found")
    if is_without_gpus_on_purpose(facts):
        raise Skip("this container has no GPU by its settings, and PyTorch is a build for CPUs", Skip.NOT_APPLICABLE)
    if facts.python.torch_cuda is None:
        yield cpu_only(facts)
        return
    name = wheel_variant(facts)
    yield from for_each(facts.nvml.gpus, lambda gpu: architecture(facts, name, gpu))


def cpu_only(facts: Facts) -> Finding:
    version = facts.python.torch_version or ""
    evidence = {"installed": version, **torch_builds.replacement(facts, version)}
    problem, words = fitting(CPU_ONLY, facts, evidence), f"torch {version} is built without CUDA"
    other = None if facts.texts.alone or gpu_packages.needing_torch(facts) else gpu_packages.on_gpu(facts)
    if other is None and works_elsewhere(facts):
        problem, words = replace(problem, fixes=(USE_OTHER,)), f"{words}; that of another Python in the text uses the GPU"
    if other is None:
        found = problem.found(words, evidence, packages=("torch",))
        causes = ("framework-from-conda-and-pip",) if facts.texts.alone else ()
        return replace(found, because="notebook-kernel-of-another-python", causes=(*found.causes, *causes))
    may_be_meant = replace(problem, status=Status.WARN, latent=True, fixes=(MEANT, *problem.fixes))
    return may_be_meant.found(f"{words}; {other} is installed for the GPU", {**evidence, "beside": other}, packages=("torch",))


def works_elsewhere(facts: Facts) -> bool:
    """Whether a text also shows a build with CUDA that sees a GPU. Nothing may be installed over that one."""
    return facts.texts.alone and any(WORKS.search(passage.text) for text in facts.texts.all for passage in text.passages)


def fitting(problem: Problem, facts: Facts, evidence: Mapping[str, Any]) -> Problem:
    """The problem with the pip fix extended to all packages compiled against PyTorch."""
    *others, by_pip = problem.fixes
    variant = evidence["index"].removeprefix(INDEX)
    if "cpuonly" in known(lambda: facts.python.conda_packages, {}):
        return replace(problem, fixes=(OF_PYTORCH_CHANNEL, *others))
    return replace(problem, fixes=(*others, other_torch.install(facts, by_pip, evidence["version"], variant)))


def wheel_variant(facts: Facts) -> str:
    """Such as "cu128"; Unavailable for a build whose architectures are not published."""
    version = facts.python.torch_version or ""
    if not PUBLISHED.fullmatch(version) and not _is_listed(facts, version):
        raise Unavailable(f"the GPUs that the build torch {version} has code for are unknown", Skip.UNSUPPORTED)
    return "cu" + (facts.python.torch_cuda or "").replace(".", "")


def _is_listed(facts: Facts, version: str) -> bool:
    """The list of pip in a text shows PyPI's build without its local version."""
    return facts.texts.alone and bool(re.fullmatch(r"\d+\.\d+\.\d+", version)) and not known(lambda: facts.python.conda_packages)


def architecture(facts: Facts, variant: str, gpu: Gpu) -> Iterator[Finding]:
    version, capability = facts.python.torch_version or "", gpu.compute_capability
    built_for = knowledge.torch_architectures(version, variant, processor(facts, gpu))
    if built_for is None:
        raise Unavailable(f"the GPUs that torch {version} has code for are unknown", Skip.UNSUPPORTED)
    if knowledge.runs_on(built_for, capability):
        return
    needed = "sm_{}{}".format(*capability)
    evidence = {"capability": needed, "built_for": built_for, **torch_builds.replacement(facts, version, capability)}
    words = f"{gpu.name} needs {needed}; torch {version} has {', '.join(built_for)}"
    yield fitting(MISSING_ARCHITECTURE, facts, evidence).found(words, evidence, gpu=gpu.index, packages=("torch",))


def processor(facts: Facts, gpu: Gpu) -> str:
    """The processor's architecture; x86_64 if a text does not contain it, unless the GPU is part of an Arm board."""
    try:
        return facts.system.architecture
    except Skip:
        if ON_ARM.search(gpu.name):
            raise
        return "x86_64"


def summary(facts: Facts) -> str:
    return f"torch {facts.python.torch_version}, CUDA {facts.python.torch_cuda}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(CPU_ONLY, MISSING_ARCHITECTURE),
    tags=("pytorch",),
)
