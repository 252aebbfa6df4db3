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

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import NEWER_DRIVER, install_on
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip

NOT_SUPPORTED = 804
VERIFY = "python3 -c \"import ctypes; print('cuInit:', ctypes.CDLL('libcuda.so.1').cuInit(0))\"  # 0 is success"

WHY_ON_HOST = (
    "The package cuda-compat contains the libcuda of a newer driver. Only data-centre GPUs and some RTX workstation cards "
    "support it; GeForce GPUs do not, so CUDA does not start although the driver works."
)
NEWER = replace(
    NEWER_DRIVER, title="If a program needs a newer CUDA than the driver supports: install a newer driver, then reboot"
)

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


# On a host, nothing but its own settings selects these libraries.
OF_HOST = (
    Fix(
        "Remove the folder from LD_LIBRARY_PATH: programs then use the driver's own libcuda",
        "export LD_LIBRARY_PATH=<library_path>",
        verify=VERIFY,
        where="shell",
    ),
    *install_on(
        "Remove the package: on this GPU it can only do harm",
        verify=VERIFY,
        kinds={},
        debian="sudo apt purge <compat_package>",
        rhel="sudo dnf remove <compat_package>",
        suse="sudo zypper remove <compat_package>",
    ),
    NEWER,
)
UNSET = replace(OF_HOST[0], command="unset LD_LIBRARY_PATH")


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.cuda.is_compat:
        raise Skip("no forward-compatibility libcuda is loaded")
    if facts.cuda.init_code == NOT_SUPPORTED:
        names = ", ".join(sorted({gpu.name for gpu in facts.nvml.gpus}))
        packages = {"compat_package": package} if (package := compat_package(facts)) else {}
        yield fitting(facts).found(
            f"{facts.cuda.library} is loaded on {names} with driver {facts.nvml.driver_version} (error 804)",
            {"library": facts.cuda.library, "driver": facts.nvml.driver_version, "library_path": library_path(facts), **packages},
        )


def fitting(facts: Facts) -> Problem:
    """The problem with the fixes for this place: a host has no image."""
    if facts.container.engine:
        return COMPAT if has_same_major(facts) else replace(COMPAT, fixes=(COMPAT.fixes[0], COMPAT.fixes[2]))
    path, package, newer = OF_HOST[:1], OF_HOST[1:-1] if compat_package(facts) else (), OF_HOST[-1]
    if not is_in_path(facts):
        path = ()
    elif not library_path(facts):
        path = (UNSET,)
    return replace(COMPAT, why=WHY_ON_HOST, action=Action.FIX_CONFIG, fixes=(*path, *package, newer))


def is_in_path(facts: Facts) -> bool:
    return any("/compat" in entry for entry in facts.environment.library_path)


def compat_package(facts: Facts) -> str | None:
    """The installed package of the loaded library: its name contains the release that its folder is named after."""
    release = re.search(r"/cuda-(\d+)\.(\d+)/compat\b", facts.cuda.library or "")
    installed = known(lambda: {package.name for package in facts.driver.packages if package.state == "installed"}, set())
    name = f"cuda-compat-{release[1]}-{release[2]}" if release else ""
    return name if name in installed else None


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
