"""NVIDIA supports this WSL2's kernel, Windows driver and GPU for CUDA.

What it means
CUDA under WSL2 is newer than CUDA itself: it requires a recent enough kernel, Windows driver and GPU.

How it is judged
NVIDIA's guide for WSL requires kernel 5.10.16.3 or later, Windows driver R495 or later (NVML reports the version of the Windows
driver), and Pascal (compute capability 6.0) or later. The check runs only if WSL has the GPU.

Known exceptions
Older ones may work (Maxwell does for some users), so an old kernel or GPU is a warning. The table header of nvidia-smi prints
its own Linux version next to the driver's, which does not matter.

References
https://docs.nvidia.com/cuda/wsl-user-guide/index.html
https://github.com/microsoft/WSL/issues/9962
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.fixes.common import shut_down_wsl
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

GUIDE = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"
SUPPORTED_KERNEL = (5, 10, 16)
FIRST_DRIVER = 495
PASCAL = (6, 0)
SMI = "/usr/lib/wsl/lib/nvidia-smi -L"

KERNEL = Problem(
    id="wsl-kernel-outdated",
    title="The WSL kernel is older than NVIDIA supports",
    why="Windows shares the GPU, but kernels before 5.10.16.3 have known faults with it and lack newer features.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(shut_down_wsl("Update WSL and its kernel from Windows", verify="uname -r", before="wsl.exe --update"),),
    references=(GUIDE,),
)

DRIVER = Problem(
    id="wsl-windows-driver-too-old",
    title="The Windows driver is too old for CUDA under WSL2",
    why="CUDA under WSL2 requires R495 or later. The driver belongs to Windows and can only be upgraded there.",
    action=Action.INSTALL,
    fixes=(
        shut_down_wsl(
            "In Windows: install the newest driver from https://www.nvidia.com/Download, then shut WSL down", verify=SMI
        ),
    ),
    references=(GUIDE,),
)

GPU = Problem(
    id="wsl-gpu-too-old",
    title="This GPU is older than NVIDIA supports under WSL2",
    why="NVIDIA supports CUDA under WSL2 from Pascal (GeForce GTX 10) on; older GPUs may work, or fail in unclear ways.",
    action=Action.NONE,
    status=Status.WARN,
    fixes=(Fix("Use this GPU from Windows or from a native Linux, or use a newer GPU"),),
    references=(GUIDE,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl != 2:
        raise Skip("this is not WSL2")
    kernel, driver = facts.system.kernel, facts.nvml.driver_version
    release = re.match(r"(\d+)\.(\d+)\.(\d+)", kernel)  # words of WSL in a text do not contain it
    if release and tuple(map(int, release.groups())) < SUPPORTED_KERNEL:
        yield KERNEL.found(f"kernel {kernel}, NVIDIA supports 5.10.16.3 or later", {"kernel": kernel})
    if int(driver.split(".")[0]) < FIRST_DRIVER:
        yield DRIVER.found(f"Windows driver {driver}, CUDA under WSL2 requires {FIRST_DRIVER} or later", {"driver": driver})
    yield from for_each(facts.nvml.gpus, judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    capability = gpu.compute_capability
    if capability < PASCAL:
        words = f"{gpu.name}: compute capability {capability[0]}.{capability[1]}, NVIDIA supports 6.0 or later"
        yield GPU.found(words, {"name": gpu.name, "compute_capability": capability}, gpu=gpu.index)


def summary(facts: Facts) -> str:
    return f"kernel {facts.system.kernel}, Windows driver {facts.nvml.driver_version}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(KERNEL, DRIVER, GPU),
    needs=("wsl-gpu",),
)
