"""The whole memory of a data-centre GPU can be reached over PCIe (BAR1).

What it means
Network adapters (GPUDirect RDMA), other GPUs over PCIe, and the CPU reach a GPU's memory through a window of addresses, BAR1. If
the firmware reserves too few addresses at boot, the window covers only a part. Large transfers without a copy in host memory then
fail, or take the slow way.

How it is judged
NVML's size of BAR1. On data-centre boards with HBM since Volta it must cover the memory: V100 16 GB has 16 GiB, H100 80 GB
128 GiB, H200 256 GiB. On all boards, it must not be less than half of that of another GPU of the same model in this machine.

Known exceptions
GeForce and workstation cards, T4 and P4 start with 256 MiB; resizable BAR enlarges it on some of them, and only a difference
between siblings is reported. Boards on NVLink-C2C (GH200, GB200, GB300), MIG and virtual GPUs are not judged.

References
https://docs.nvidia.com/deploy/nvml-api/structnvmlBAR1Memory__t.html
https://docs.nvidia.com/cuda/gpudirect-rdma/index.html
https://github.com/JuliaComputing/nvidia-driver-pcie-rebar
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/510
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

SHOW = "nvidia-smi -q -d MEMORY"
SINCE_VOLTA = ("Volta", "Ampere", "Hopper", "Blackwell")
ON_C2C = re.compile(r"NVIDIA G[HB]\d")

SMALL = Problem(
    id="bar1-smaller-than-memory",
    title="A GPU's BAR1 window covers only a part of its memory",
    why="Network adapters, other GPUs over PCIe and mappings of the CPU reach the memory through this window. At boot, the "
    "firmware reserved too few addresses for it, so GPUDirect RDMA and peer-to-peer access fail for large buffers or copy "
    "through host memory.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        look(
            "Show why the kernel could not place the window",
            "sudo dmesg | grep -iE 'BAR .*(assign|resize)'",
            root=True,
            on=("host",),
        ),
        Fix(
            "In the firmware: enable Above 4G Decoding (large MMIO) and Resizable BAR for all slots, and update it",
            risk="disruptive",
            needs=("reboot",),
            verify=SHOW,
            on=("physical",),
        ),
        Fix("In a virtual machine: ask its host for a larger 64-bit MMIO window", verify=SHOW),
    ),
    references=(
        "https://docs.nvidia.com/cuda/gpudirect-rdma/index.html",
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/510",
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    sizes = {gpu: gpu.bar1_total_mib for gpu in facts.nvml.gpus if is_judged(gpu)}
    if not sizes:
        raise Skip("no GPU shows the size of its BAR1")
    yield from for_each(sizes, partial(judge_gpu, sizes))


def judge_gpu(sizes: Mapping[Gpu, int], gpu: Gpu) -> Iterator[Finding]:
    mib, memory = sizes[gpu], gpu.memory_total_mib
    most = max(other_mib for other, other_mib in sizes.items() if other.name == gpu.name)
    if covers_memory(gpu) and mib < memory:
        yield SMALL.found(f"BAR1 has {mib} MiB, the memory {memory} MiB", {"bar1_mib": mib, "memory_mib": memory}, gpu=gpu.index)
    elif 2 * mib < most:
        words = f"BAR1 has {mib} MiB, that of another {gpu.name} {most} MiB"
        yield SMALL.found(words, {"bar1_mib": mib, "most_mib": most}, gpu=gpu.index)


def is_judged(gpu: Gpu) -> bool:
    """Whether NVML shows the window of the whole board."""
    whole = known(lambda: not gpu.is_in_mig_mode and gpu.virtualization_mode in ("none", "passthrough"), False)
    return whole and known(lambda: gpu.bar1_total_mib, 0) > 0


def covers_memory(gpu: Gpu) -> bool:
    """Whether boards of this model have a window as large as their memory."""
    board = knowledge.gpu_by_name(gpu.name)
    return (
        board is not None
        and board.segment == "data centre"
        and board.memory_type.startswith("HBM")
        and board.architecture in SINCE_VOLTA
        and not ON_C2C.match(board.name)
    )


def summary(facts: Facts) -> str:
    sizes = sorted({gpu.bar1_total_mib for gpu in facts.nvml.gpus if is_judged(gpu)})
    return f"BAR1 {' to '.join(f'{mib / 1024:g} GiB' for mib in dict.fromkeys((sizes[0], sizes[-1])))}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(SMALL,),
    needs=("nvml",),
    tags=("memory",),
)
