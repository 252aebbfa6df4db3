"""Forward compatibility (cuda-compat) is used only where the GPU allows it.

What it means
A cuda-compat package brings the libcuda of a newer driver, so that programs of a newer CUDA run on an older kernel module.
Images bring it and choose it when they start. The driver allows it only on data-centre GPUs and some RTX workstation cards.

How it is judged
The loaded libcuda comes from a compat folder, and cuInit says whether this GPU allows it (error 804 where it does not).

Known exceptions
A compat libcuda that is older than the driver is no forward compatibility: cuda-library judges it.

References
https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
https://github.com/NVIDIA/nvidia-docker/issues/1515
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip

NOT_SUPPORTED = 804
VERIFY = "python3 -c \"import ctypes; print('cuInit:', ctypes.CDLL('libcuda.so.1').cuInit(0))\"  # 0 is success"

COMPAT = Problem(
    id="container-forward-compat-804",
    title="A forward-compatibility libcuda is loaded on a GPU that does not allow it",
    why="The image needs a newer CUDA than the driver has, and brings cuda-compat to bridge that. Only data-centre GPUs (and "
    "some RTX workstation cards) allow it: GeForce does not.",
    action=Action.INSTALL,
    fixes=(
        Fix("Install a newer driver on the host, one that knows the image's CUDA itself"),
        Fix(
            "Do without the compatibility libraries: the programs of the image then run by minor-version compatibility",
            "export LD_LIBRARY_PATH=<library_path>",
            verify=VERIFY,
            where="shell",
        ),
        Fix("Choose an older image, whose CUDA the driver knows"),
    ),
    references=(
        "https://github.com/microsoft/onnxruntime/issues/21435",
        "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.cuda.is_compat:
        raise Skip("no forward-compatibility libcuda is loaded")
    if facts.cuda.init_code == NOT_SUPPORTED:
        names = ", ".join(sorted({gpu.name for gpu in facts.nvml.gpus}))
        problem = COMPAT if has_same_major(facts) else replace(COMPAT, fixes=(COMPAT.fixes[0], COMPAT.fixes[2]))
        yield problem.found(
            f"{facts.cuda.library} is loaded on {names} with driver {facts.nvml.driver_version} (error 804)",
            {"library": facts.cuda.library, "driver": facts.nvml.driver_version, "library_path": library_path(facts)},
        )


def has_same_major(facts: Facts) -> bool:
    """Minor-version compatibility helps only within one major version of CUDA."""
    image, driver = facts.cuda.driver_version, facts.nvml.cuda_version
    return driver is not None and image[0] == driver[0]


def library_path(facts: Facts) -> str:
    """What LD_LIBRARY_PATH should be: without the compat folder, and where that is found otherwise, the driver's own first."""
    entries = facts.environment.library_path
    kept = [entry for entry in entries if "/compat" not in entry]
    release = facts.nvml.driver_version
    own = [library.directory for library in facts.libraries.named("libcuda") if library.version == release]
    return ":".join(dict.fromkeys(kept if len(kept) < len(entries) else [*own[:1], *kept]))


def summary(facts: Facts) -> str:
    version = "{}.{}".format(*facts.cuda.driver_version)
    return f"CUDA {version} by cuda-compat {facts.cuda.library_version} on driver {facts.driver.module_version}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(COMPAT,),
    needs=("cuda-library", "nvml"),
)
