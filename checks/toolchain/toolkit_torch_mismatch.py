"""The CUDA toolkit that builds use has the same major version as PyTorch's CUDA.

What it means
Extensions of PyTorch (flash-attn, apex, DeepSpeed, xformers) are compiled with the machine's toolkit and loaded into PyTorch,
which was built with its own CUDA. PyTorch refuses to build them if the major versions differ.

How it is judged
The toolkit that torch.utils.cpp_extension uses (CUDA_HOME or CUDA_PATH, else nvcc on PATH, else /usr/local/cuda) is compared with
torch.version.cuda. A mismatch is reported if something builds extensions: such a package is installed, Ninja is installed, a
variable for builds is set (CUDA_HOME, TORCH_CUDA_ARCH_LIST ...), or a build has failed because of it.

Known exceptions
Most machines with a toolkit never build an extension; there, a toolkit of another version does no harm. Within one major version,
PyTorch only prints a warning, and the extensions work. Without a toolkit, or with a PyTorch without CUDA, there is nothing to
compare. Running PyTorch needs no toolkit. A PyTorch that must be replaced is judged first.

References
https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.builds import skip_conflict
from gpudoctor.facts.toolchain import Version
from gpudoctor.facts.versions import dotted
from gpudoctor.fixes.common import install_on
from gpudoctor.judging.python import run_time_builds
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

MISMATCH = Problem(
    id="nvcc-torch-cuda-mismatch",
    title="The CUDA toolkit and PyTorch's CUDA have different major versions",
    why='Packages that compile CUDA code against PyTorch fail to build: "The detected CUDA version mismatches the version that '
    'was used to compile PyTorch". PyTorch itself works.',
    action=Action.INSTALL,
    fixes=(
        *install_on(
            "Install the toolkit of PyTorch's CUDA alongside the other",
            recipe="toolkit <cuda>",
            debian="sudo apt install cuda-toolkit-<dashed>",
            rhel="sudo dnf install cuda-toolkit-<dashed>",
            suse="sudo zypper install cuda-toolkit-<dashed>",
            conda="conda install -c nvidia cuda-toolkit=<cuda>",
            undos={
                "debian": "sudo apt remove cuda-toolkit-<dashed>",
                "rhel": "sudo dnf remove cuda-toolkit-<dashed>",
                "suse": "sudo zypper remove cuda-toolkit-<dashed>",
            },
        ),
        Fix(
            "Use that toolkit for builds",
            "export CUDA_HOME=<toolkit> PATH=<toolkit>/bin:$PATH",
            verify="nvcc --version",
            where="shell",
        ),
        Fix("Install a package that is already built for this PyTorch"),
    ),
    references=("https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py",),
    status=Status.WARN,
    latent=True,
)


def judge(facts: Facts) -> Iterator[Finding]:
    cuda = facts.python.torch_cuda
    if cuda is None:
        raise Skip("this PyTorch is built without CUDA")
    skip_conflict(facts)
    root, version = toolkit(facts)
    major = int(cuda.split(".")[0])
    if version[0] == major:
        return
    fitting = next((kit.root for kit in facts.toolchain.toolkits if kit.version and kit.version[0] == major), None)
    problem = replace(MISMATCH, fixes=MISMATCH.fixes[-2:]) if fitting else MISMATCH
    finding = problem.found(
        f"{root} is CUDA {dotted(version)}; torch {facts.python.torch_version} was built with CUDA {cuda}",
        {"cuda": cuda, "dashed": cuda.replace(".", "-"), "toolkit": fitting or f"/usr/local/cuda-{cuda}", "found": root},
        packages=("torch",),
    )
    # If the GPU is too new for this toolkit, the fix for that installs one that fits PyTorch too.
    yield run_time_builds.wanted_by(run_time_builds.of_builds(facts), replace(finding, because="nvcc-too-old-for-gpu"))


def toolkit(facts: Facts) -> tuple[str, Version]:
    """The path of the toolkit that a build uses, and its version."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        path = facts.environment.get(name)
        root = facts.toolchain.root_of(path) if path else None
        for kit in facts.toolchain.toolkits:
            if kit.root == root and kit.version:
                return f"{name} ({kit.root})", kit.version
    nvcc = facts.toolchain.default_nvcc
    if nvcc is None or nvcc.version is None:
        raise Skip("no CUDA toolkit is installed", Skip.NOT_INSTALLED)
    if not nvcc.on_path and facts.toolchain.default_toolkit is None:
        raise Skip(f"builds do not find {nvcc.path}: it is neither on PATH nor in /usr/local/cuda")
    return nvcc.path, nvcc.version


def summary(facts: Facts) -> str:
    return f"toolkit {dotted(toolkit(facts)[1])}, torch {facts.python.torch_version} with CUDA {facts.python.torch_cuda}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(MISMATCH,),
    explained_by=("torch",),
    tags=("pytorch",),
)
