"""Several GPUs work together under WSL2: NCCL and the Windows driver support it.

What it means
NCCL moves data between GPUs, and its ranks share memory of the GPUs by CUDA IPC. Under WSL2 both came later than CUDA itself.
Older ones fail when they start, with "unhandled system error" or "unhandled cuda error", or hang.

How it is judged
With at least two GPUs, NVIDIA's guide for WSL requires NCCL 2.12 or later, and Windows driver R510 or later for CUDA IPC. The
release of NCCL is that of its wheel in the examined Python, or of the system's libnccl.

Known exceptions
Under WSL2, NVML shows neither the links between GPUs nor who may access whose memory, so peer-access cannot judge them, and
users report that NVLink is not used. peer-transfers and all-reduce measure what the connection carries; without a known path it
is shown and not judged. A PyTorch that contains NCCL does not show its release.

References
https://docs.nvidia.com/cuda/wsl-user-guide/index.html
https://github.com/NVIDIA/nccl/issues/442
https://github.com/NVIDIA/nccl/issues/511
https://github.com/microsoft/WSL/issues/6587
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import shut_down_wsl
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

GUIDE = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"
FIRST_NCCL = Version("2.12")
FIRST_DRIVER = 510
AGAIN = "gpudoctor check --only all-reduce"

NCCL = Problem(
    id="wsl-nccl-too-old",
    title="NCCL is too old for several GPUs under WSL2",
    why="NCCL supports WSL2 from 2.12 on. Older releases look for PCI devices that WSL2 does not have, and programs that use "
    "several GPUs fail at their start with 'unhandled system error'.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        Fix(
            "Install a current PyTorch, which brings a newer NCCL",
            "<python> -m pip install --upgrade torch",
            needs=("network",),
            verify=AGAIN,
            kind="install",
        ),
        Fix("Until then: use one GPU", "export CUDA_VISIBLE_DEVICES=0", where="shell"),
    ),
    references=(GUIDE, "https://github.com/NVIDIA/nccl/issues/511"),
)
DRIVER = Problem(
    id="wsl-driver-without-ipc",
    title="The Windows driver cannot share GPU memory between processes",
    why="Under WSL2, CUDA IPC requires R510 or later. Without it, ranks of one program cannot pass tensors to each other, and "
    "torch.multiprocessing fails with CUDA tensors.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        shut_down_wsl(
            "In Windows: install the newest driver from https://www.nvidia.com/Download, then shut WSL down", verify=AGAIN
        ),
    ),
    references=(GUIDE,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl != 2:
        raise Skip("this is not WSL2")
    if facts.nvml.count < 2:
        raise Skip("there is only one GPU")
    driver = facts.nvml.driver_version
    if int(driver.split(".")[0]) < FIRST_DRIVER:
        yield DRIVER.found(f"Windows driver {driver}, CUDA IPC requires {FIRST_DRIVER} or later", {"driver": driver})
    version, where = release(facts)
    if Version(version) < FIRST_NCCL:
        yield NCCL.found(f"NCCL {version} ({where}), WSL2 requires {FIRST_NCCL} or later", {"nccl": version})


def release(facts: Facts) -> tuple[str, str]:
    """NCCL's release and where it comes from."""
    for name, copies in known(lambda: facts.python.packages, {}).items():
        if re.fullmatch(r"nvidia-nccl-cu\d+", name):
            return copies[0].version, name
    library = known(lambda: facts.libraries.resolved("libnccl.so.2"))
    if library is None or library.version is None:
        raise Skip("no NCCL with a known release is installed")
    return library.version, library.path


def summary(facts: Facts) -> str:
    version, _ = release(facts)
    return f"NCCL {version} and Windows driver {facts.nvml.driver_version} support {facts.nvml.count} GPUs"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NCCL, DRIVER),
    needs=("wsl-requirements",),
    tags=("nccl",),
)
