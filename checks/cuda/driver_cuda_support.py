"""The driver is new enough for the installed CUDA.

What it means
Every CUDA runtime requires a minimum driver: CUDA 12 at least R525, CUDA 13 at least R580. Within one major version a newer
runtime works on an older driver, but such a driver cannot compile PTX from a newer compiler.

How it is judged
The check compares the driver release (of libcuda, which a cuda-compat package may replace) with the minimum for the CUDA
version of PyTorch, of the runtime packages in this Python, and of the toolkit in use. Then it compares the CUDA version of
libcuda with the compilers whose PTX the driver has to compile: nvcc, and libNVVM (from a wheel, conda, CUDA_HOME or
/usr/local/cuda) for a Numba without nvJitLink.

Known exceptions
PyTorch, CuPy, Triton and newer releases of Numba generate machine code for the GPU, so a newer NVRTC or ptxas in their wheels
is not a problem. Installed toolkits that are not in use are not judged. The check toolkit-torch-mismatch judges a toolkit whose
major version differs from PyTorch's CUDA.

References
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
https://github.com/NVIDIA/numba-cuda/issues/163
https://numba.readthedocs.io/en/stable/cuda/minor_version_compatibility.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from packaging.version import Version

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.versions import dotted
from gpudoctor.fixes.common import install_on
from gpudoctor.judging.python import numba_compiler, other_torch
from gpudoctor.knowledge import wheels
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")
CONDA_RUNTIMES = ("cuda-cudart", "cudatoolkit")
LONG_TERM = 580  # the maintained branch that supports the most GPUs
OLDER = "/usr/local/cuda-<older>"
TURING = (7, 5)

UPGRADE = install_on(
    "Install a newer driver",
    recipe="driver <upgrade>",
    verify="nvidia-smi",
    debian="(sudo apt install <package> || sudo apt install nvidia-driver)",
    rhel="sudo dnf upgrade --refresh '*nvidia*'",
    suse="sudo zypper update '*nvidia*'",
    arch="sudo pacman -Syu",
    other="sudo sh NVIDIA-Linux-*-<upgrade>.*.run",
    reboot=True,
)
NO_UPGRADE = (Fix("Use software for a CUDA version that this driver supports: no newer driver exists for this GPU"),)
UPGRADE_WINDOWS = (Fix("In Windows: install the newest NVIDIA driver, then run wsl --shutdown", verify="nvidia-smi"),)
OTHER_TORCH = Fix(
    "Install a PyTorch that this driver can run",
    "<python> -m pip uninstall -y torch && <python> -m pip install torch==<torch> --index-url <index>",
    needs=("network",),
    verify="<python> -c 'import torch; print(torch.zeros(1).cuda())'",
    kind="install",
)

TOO_OLD = Problem(
    id="driver-too-old-for-runtime",
    title="The driver is too old for the installed CUDA",
    why='Programs load this CUDA runtime, which refuses to work with the driver: "CUDA driver version is insufficient for CUDA '
    'runtime version" (35). PyTorch reports that the NVIDIA driver on your system is too old.',
    action=Action.INSTALL,
    fixes=(*UPGRADE, OTHER_TORCH),
    references=(COMPATIBILITY, "https://github.com/NVIDIA/nvidia-docker/issues/106"),
)

TOOLKIT_TOO_NEW = Problem(
    id="driver-too-old-for-toolkit",
    title="Programs built with this CUDA toolkit cannot run on this driver",
    why="The toolkit's major version is newer than the driver supports. Its compiler works, but the programs that it builds fail "
    "with error 35.",
    action=Action.INSTALL,
    fixes=(
        *UPGRADE,
        Fix("Build with a toolkit that the driver supports", f"export CUDA_HOME={OLDER} PATH={OLDER}/bin:$PATH", where="shell"),
    ),
    references=(COMPATIBILITY,),
    status=Status.WARN,
    latent=True,
)

UNSUPPORTED_PTX = Problem(
    id="unsupported-ptx-version",
    title="The driver is too old to compile this compiler's PTX",
    why='A program that contains only PTX, not code for this GPU, fails with error 222, "the provided PTX was compiled with an '
    'unsupported toolchain". nvcc without -arch builds such programs.',
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Rebuild the program for this GPU's architecture (nvcc: -arch=sm_XY)",
            "export TORCH_CUDA_ARCH_LIST=<arch> CUDAARCHS=<real>",
            where="shell",
        ),
        *UPGRADE,
    ),
    references=("https://github.com/NVIDIA/nvbandwidth/issues/61", "https://github.com/huggingface/candle/issues/1846"),
    status=Status.WARN,
    latent=True,
)


class Installed(NamedTuple):
    """A CUDA component and its CUDA version. package: the distribution that contains it."""

    name: str
    cuda: tuple[int, int]
    package: str = ""


def judge(facts: Facts) -> Iterator[Finding]:
    driver = facts.cuda.library_version or facts.nvml.driver_version
    too_new = [one for one in runtimes(facts) if not runs(one.cuda, driver, facts)]
    if too_new:
        yield too_old(facts, too_new, driver)
        return
    nvcc = compiler(facts)
    if nvcc and not runs(nvcc.cuda, driver, facts):
        if not differs_from_torch(facts, nvcc):
            yield toolkit_too_new(facts, nvcc, driver)
    else:
        nvvm = numba_compiler.nvvm_for_the_driver(facts)
        of_numba = Installed(nvvm.words, pair(nvvm.version)) if nvvm else None
        newer = [one for one in (of_numba, nvcc) if one and one.cuda > facts.cuda.driver_version]
        if newer:
            yield unsupported_ptx(facts, newer, driver, is_of_numba=of_numba in newer)


def differs_from_torch(facts: Facts, nvcc: Installed) -> bool:
    return any(one.package == "torch" and one.cuda[0] != nvcc.cuda[0] for one in runtimes(facts))


def runs(cuda: tuple[int, int], driver: str, facts: Facts) -> bool:
    least = knowledge.minimum_driver(cuda)
    return cuda[0] <= facts.cuda.driver_version[0] if least is None else Version(driver) >= Version(least)


def runtimes(facts: Facts) -> list[Installed]:
    """The CUDA runtimes that programs of this Python load."""
    found = []
    torch = facts.python.package("torch")
    if torch and (cuda := facts.python.torch_cuda):
        found.append(Installed(f"torch {facts.python.torch_version}", pair(cuda), "torch"))
    wheels_of = [(name, package.version) for name in RUNTIMES if (package := facts.python.package(name))]
    of_conda = [(name, known.version) for name in CONDA_RUNTIMES if (known := facts.python.conda_packages.get(name))]
    return found + [Installed(f"{name} {version}", pair(version), name) for name, version in (*wheels_of, *of_conda)]


def compiler(facts: Facts) -> Installed | None:
    nvcc = facts.toolchain.default_nvcc
    return Installed(f"{nvcc.path} ({dotted(nvcc.version)})", pair(dotted(nvcc.version))) if nvcc and nvcc.version else None


def pair(version: str) -> tuple[int, int]:
    numbers = re.findall(r"\d+", version)
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0


def too_old(facts: Facts, too_new: list[Installed], driver: str) -> Finding:
    newest = max(too_new, key=lambda one: one.cuda)
    evidence = {
        "driver": driver,
        "least_driver": least(newest),
        "needs_it": [one.name for one in too_new],
        **upgrade(facts, knowledge.minimum_driver(newest.cuda)),
    }
    other = torch_for(facts, driver)
    if other:
        release, variant = other
        evidence |= {"torch": release, "index": other_torch.INDEX + variant}
    others = [other_torch.install(facts, OTHER_TORCH, *other)] if other else []
    fixes = (*upgrades(facts, knowledge.minimum_driver(newest.cuda)), *others)
    names = ", ".join(one.name for one in too_new)
    return replace(TOO_OLD, fixes=fixes).found(
        f"{names}: requires driver {least(newest)} or newer, this is {driver} ({supports(facts)})",
        evidence,
        packages=filter(None, (one.package for one in too_new)),
    )


def toolkit_too_new(facts: Facts, nvcc: Installed, driver: str) -> Finding:
    older, release = dotted(facts.cuda.driver_version), knowledge.minimum_driver(nvcc.cuda)
    return replace(TOOLKIT_TOO_NEW, fixes=(*upgrades(facts, release), TOOLKIT_TOO_NEW.fixes[-1])).found(
        f"{nvcc.name} builds programs that require driver {least(nvcc)} or newer, this is {driver} ({supports(facts)})",
        {"driver": driver, "least_driver": least(nvcc), "older": older, **upgrade(facts, release)},
    )


def unsupported_ptx(facts: Facts, newer: list[Installed], driver: str, is_of_numba: bool) -> Finding:
    major, minor = min(capabilities(facts))
    release = knowledge.shipped_driver(max(one.cuda for one in newer))
    build = UNSUPPORTED_PTX.fixes[:1] if compiler(facts) else ()
    ptx = replace(UNSUPPORTED_PTX, fixes=(*build, *upgrades(facts, release)))
    is_sure = not is_of_numba or numba_compiler.is_for_a_gpu(facts)
    return (numba_compiler.unreadable(ptx, facts) if is_of_numba else ptx).found(
        f"{' and '.join(one.name for one in newer)}: the driver ({driver}) compiles only PTX up to {supports(facts)}",
        {
            "driver": driver,
            "arch": f"{major}.{minor}",
            "real": f"{major}{minor}-real",
            "numba": numba_for(facts),
            "older": numba_compiler.older_toolkit(facts),
            **upgrade(facts, release),
        },
        confidence=Confidence.CONFIRMED if is_sure else Confidence.LIKELY,
        packages=("numba", "numba-cuda") if is_of_numba else (),
    )


def numba_for(facts: Facts) -> str:
    return f"numba-cuda[cu{facts.cuda.driver_version[0]}]"


def upgrades(facts: Facts, release: str | None) -> tuple[Fix, ...]:
    """How to install a driver of at least this release, if one exists for these GPUs."""
    if facts.system.wsl:
        return UPGRADE_WINDOWS
    known = [row for gpu in capabilities(facts) if (row := knowledge.architecture(gpu))]
    if any(row.last_driver_branch and row.last_driver_branch < branch_of(release) for row in known):
        return NO_UPGRADE
    on_host = Fix(f"On the host: install a driver of branch {branch_of(release)} or newer; never install one in the image")
    return (on_host,) if facts.system.is_container else UPGRADE


def upgrade(facts: Facts, release: str | None) -> dict[str, int | str]:
    """The branch to install and its Ubuntu package: the open module does not support GPUs before Turing."""
    flavour = "-open" if min(capabilities(facts)) >= TURING else ""
    return {"upgrade": branch_of(release), "package": f"nvidia-driver-{branch_of(release)}{flavour}"}


def branch_of(release: str | None) -> int:
    return max(LONG_TERM, int((release or "0").split(".")[0]))


def least(one: Installed) -> str:
    return knowledge.minimum_driver(one.cuda) or f"of CUDA {one.cuda[0]}"


def torch_for(facts: Facts, driver: str) -> tuple[str, str] | None:
    """The newest PyTorch (at most the installed release) and its variant that this driver and all GPUs can run."""
    torch = facts.python.package("torch")
    if torch is None:
        return None
    installed = Version(Version(torch.version).base_version)
    if facts.python.package("vllm"):  # it requires exactly this release
        own = other_torch.variant_of_vllm(driver)
        return (str(installed), own) if own else None
    rows = [row for row in wheels.table().torch if Version(row.version) <= installed and is_for(row, facts.python.version)]
    for row in sorted(rows, key=lambda row: Version(row.version), reverse=True):
        variants = {
            knowledge.variant_for_driver(row.version, driver, gpu, facts.system.architecture) for gpu in capabilities(facts)
        }
        variant = variants.pop()
        if variant and not variants:
            return row.version, variant
    return None


def is_for(row: wheels.TorchRelease, python: tuple[int, ...]) -> bool:
    """Whether the release has wheels for a Python version, given as "3.9-3.13" or ">=3.11"."""
    bounds = [tuple(map(int, bound.split("."))) for bound in re.findall(r"\d+\.\d+", row.pythons)]
    return bounds[0] <= python[:2] and (len(bounds) == 1 or python[:2] <= bounds[1])


def capabilities(facts: Facts) -> set[tuple[int, int]]:
    found = {gpu.compute_capability for gpu in facts.nvml.reachable.values()}
    if not found:
        raise Skip("NVML lists no GPU", Skip.NO_ANSWER)
    return found


def supports(facts: Facts) -> str:
    return f"CUDA {dotted(facts.cuda.driver_version)}"


def summary(facts: Facts) -> str:
    names = ", ".join(one.name for one in runtimes(facts))
    return f"driver {facts.cuda.library_version or facts.nvml.driver_version}, {supports(facts)}" + (
        f"; {names}" if names else ""
    )


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(TOO_OLD, TOOLKIT_TOO_NEW, UNSUPPORTED_PTX),
    needs=("cuda-library", "nvml", "wsl-requirements"),
)
