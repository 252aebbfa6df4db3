"""bitsandbytes has a library for the CUDA release of PyTorch.

What it means
bitsandbytes ships one compiled library for each CUDA release that it supports and loads the one that matches PyTorch's CUDA
release. If that library is missing, bitsandbytes loads its CPU library or stops, and 8-bit and 4-bit quantization is not
available.

How it is judged
libbitsandbytes_cuda<release>.so exists in the package's folder. The release is torch.version.cuda, or BNB_CUDA_VERSION if that
is set. Since 0.50, a library for another release of the same major version also works.

Known exceptions
A CPU-only PyTorch is judged by its own check. Without a CUDA driver, the CPU library is the right one.

References
https://huggingface.co/docs/bitsandbytes/main/nonpytorchcuda
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip

SELF_TEST = "<python> -m bitsandbytes"
TAKES_NEIGHBOURS = Version("0.50")

NO_LIBRARY = Problem(
    id="bitsandbytes-cpu-lib",
    title="bitsandbytes has no library for PyTorch's CUDA release",
    why="This release of bitsandbytes is older than the CUDA release that PyTorch was built with, or it is a CPU build. It "
    "finds no compiled library and runs without the GPU, or not at all.",
    action=Action.INSTALL,
    fixes=(
        Fix("Install a newer bitsandbytes", "<python> -m pip install -U bitsandbytes", verify=SELF_TEST, kind="install"),
        look("List the libraries that it has", "ls <location>/bitsandbytes/libbitsandbytes_*"),
    ),
    references=("https://huggingface.co/docs/bitsandbytes/main/nonpytorchcuda",),
)

WRONG_OVERRIDE = Problem(
    id="bitsandbytes-cuda-version-override",
    title="BNB_CUDA_VERSION names a library that bitsandbytes does not have",
    why="bitsandbytes loads the library for this release instead of PyTorch's CUDA release. The variable is usually left over "
    "from an older installation.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("Unset it, here and where it is set (~/.bashrc)", "unset BNB_CUDA_VERSION", verify=SELF_TEST, where="shell"),),
    references=("https://huggingface.co/docs/bitsandbytes/main/nonpytorchcuda",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    version, cuda = wanted(facts)
    libraries = sorted(facts.python.bitsandbytes_libraries)
    override = facts.environment.get("BNB_CUDA_VERSION")
    if override:
        if f"libbitsandbytes_cuda{override}.so" not in libraries:
            message = f"BNB_CUDA_VERSION={override}, but libbitsandbytes_cuda{override}.so does not exist"
            yield WRONG_OVERRIDE.found(message, {"value": override, "libraries": libraries})
    elif not serves(facts.python.bitsandbytes_cuda, cuda, Version(version)):
        package = facts.python.packages["bitsandbytes"][0]
        name = "libbitsandbytes_cuda{}{}.so".format(*cuda)
        message = f"bitsandbytes {version} has no {name}; PyTorch is built for CUDA {cuda[0]}.{cuda[1]}"
        yield NO_LIBRARY.found(message, {"location": package.location, "libraries": libraries}, packages=("bitsandbytes",))


def wanted(facts: Facts) -> tuple[str, tuple[int, int]]:
    """The version of bitsandbytes, and the CUDA release that it needs a library for."""
    package = facts.python.package("bitsandbytes")
    if package is None:
        raise Skip("bitsandbytes is not installed in this Python")
    if facts.cuda.library is None:
        raise Skip("no CUDA driver is available to bitsandbytes")
    release = re.match(r"(\d+)\.(\d+)", facts.python.torch_cuda or "")
    if not release:
        raise Skip("the installed PyTorch is a build without CUDA")
    return package.version, (int(release[1]), int(release[2]))


def serves(available: frozenset[tuple[int, int]], cuda: tuple[int, int], version: Version) -> bool:
    return cuda in available or (version >= TAKES_NEIGHBOURS and any(major == cuda[0] for major, _ in available))


def summary(facts: Facts) -> str:
    version, cuda = wanted(facts)
    return f"bitsandbytes {version} with a library for CUDA {cuda[0]}.{cuda[1]}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_LIBRARY, WRONG_OVERRIDE),
    tags=("pytorch",),
)
