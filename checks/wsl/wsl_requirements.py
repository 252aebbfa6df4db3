"""This WSL2's kernel, its Windows driver and its GPU are ones that NVIDIA supports for CUDA.

What it means
CUDA under WSL2 is younger than CUDA itself: it needs a kernel, a Windows driver and a GPU from its time.

How it is judged
NVIDIA's guide for WSL: kernel 5.10.16.3 or later, Windows driver R495 or later (NVML gives the version of Windows' driver),
Pascal (compute capability 6.0) or later. Only once the GPU is there at all.

Known exceptions
What is older may work (Maxwell does for some), so an old kernel or GPU is a warning. The table header of nvidia-smi prints its
own Linux version beside the driver's, which does not matter.

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
    why="The GPU is shared, but kernels before 5.10.16.3 have known faults with it and lack its newer functions.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(shut_down_wsl("Update WSL and its kernel, from Windows", verify="uname -r", before="wsl.exe --update"),),
    references=(GUIDE,),
)

DRIVER = Problem(
    id="wsl-windows-driver-too-old",
    title="The Windows driver is too old for CUDA under WSL2",
    why="CUDA under WSL2 came with R495. The driver is Windows', and only there can it be upgraded.",
    action=Action.INSTALL,
    fixes=(shut_down_wsl("In Windows: install the newest driver from https://www.nvidia.com/Download, then", verify=SMI),),
    references=(GUIDE,),
)

GPU = Problem(
    id="wsl-gpu-too-old",
    title="This GPU is older than NVIDIA supports under WSL2",
    why="CUDA under WSL2 is supported from Pascal (GeForce GTX 10) on; older GPUs may work, or fail in unclear ways.",
    action=Action.NONE,
    status=Status.WARN,
    fixes=(Fix("Use it from Windows or from a Linux of its own, or use a newer GPU"),),
    references=(GUIDE,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl != 2:
        raise Skip("this is not WSL2")
    kernel, driver = facts.system.kernel, facts.nvml.driver_version
    if tuple(map(int, re.findall(r"\d+", kernel)[:3])) < SUPPORTED_KERNEL:
        yield KERNEL.found(f"kernel {kernel}, supported is 5.10.16.3 or later", {"kernel": kernel})
    if int(driver.split(".")[0]) < FIRST_DRIVER:
        yield DRIVER.found(f"Windows driver {driver}, CUDA under WSL2 needs {FIRST_DRIVER} or later", {"driver": driver})
    yield from for_each(facts.nvml.gpus, judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    capability = gpu.compute_capability
    if capability < PASCAL:
        words = f"{gpu.name}: compute capability {capability[0]}.{capability[1]}, supported is 6.0 or later"
        yield GPU.found(words, {"name": gpu.name, "compute_capability": capability}, gpu=gpu.index)


def summary(facts: Facts) -> str:
    return f"kernel {facts.system.kernel}, Windows driver {facts.nvml.driver_version}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(KERNEL, DRIVER, GPU),
    needs=("wsl-gpu",),
)
