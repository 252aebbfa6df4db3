"""Forward compatibility (cuda-compat) is used only if the GPU supports it.

What it means
A cuda-compat package contains the libcuda of a newer driver, so that programs built for a newer CUDA run on an older kernel
module. Images include it and select it at start. The driver supports it only on data-centre GPUs and some RTX workstation cards.

How it is judged
The loaded libcuda comes from a compat folder. cuInit returns error 804 if this GPU does not support it.

Known exceptions
A compat libcuda that is older than the driver is not forward compatibility: the check cuda-library judges it.

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
    title="This GPU does not support the loaded forward-compatibility libcuda",
    why="The image needs a newer CUDA than the driver has and includes cuda-compat for that. Only data-centre GPUs and some RTX "
    "workstation cards support it; GeForce GPUs do not.",
    action=Action.INSTALL,
    fixes=(
        Fix("Install a newer driver on the host that supports the image's CUDA version"),
        Fix(
            "Exclude the compatibility libraries; the image's programs then use minor-version compatibility",
            "export LD_LIBRARY_PATH=<library_path>",
            verify=VERIFY,
            where="shell",
        ),
        Fix("Use an older image whose CUDA version the driver supports"),
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
    """Minor-version compatibility works only within one major version of CUDA."""
    image, driver = facts.cuda.driver_version, facts.nvml.cuda_version
    return driver is not None and image[0] == driver[0]


def library_path(facts: Facts) -> str:
    """The LD_LIBRARY_PATH to set: without the compat folder; if that is found another way, with the driver's folder first."""
    entries = facts.environment.library_path
    kept = [entry for entry in entries if "/compat" not in entry]
    release = facts.nvml.driver_version
    own = [library.directory for library in facts.libraries.named("libcuda") if library.version == release]
    return ":".join(dict.fromkeys(kept if len(kept) < len(entries) else [*own[:1], *kept]))


def summary(facts: Facts) -> str:
    version = "{}.{}".format(*facts.cuda.driver_version)
    return f"CUDA {version} through cuda-compat {facts.cuda.library_version} on driver {facts.driver.module_version}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(COMPAT,),
    needs=("cuda-library", "nvml"),
)
