"""The virtual GPU has its licence.

What it means
In a virtual machine with a slice of a GPU (NVIDIA vGPU) the driver wants a licence. Without one it works for a while, then
holds the GPU's speed down more and more.

How it is judged
Where NVML says that this is a vGPU: whether any of its licensable features is licensed.

Known exceptions
GPUs passed through as a whole, and bare metal, need no licence.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

UNLICENSED = Problem(
    id="vgpu-unlicensed-throttled",
    title="The virtual GPU has no licence and is slowed down",
    why="The licence client did not get a licence from its server. After a grace time the driver lowers the speed of the vGPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Put the client token of your licence server in place, then start the client again",
            "sudo chmod 744 /etc/nvidia/ClientConfigToken/*.tok && sudo systemctl restart nvidia-gridd",
            verify="nvidia-smi -q | grep -i 'license status'",
            on=("host",),
        ),
        Fix("See why the client got none", "sudo journalctl -u nvidia-gridd -b --no-pager | tail -n 20", on=("host",)),
        Fix("Ask the owner of the virtual machine: the licence client runs there", on=("container", "wsl2")),
    ),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from for_each(facts.nvml.reachable.values(), judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    if gpu.virtualization_mode != "vgpu":
        raise Skip("there is no vGPU here")
    licences = gpu.vgpu_licences
    if not licences:
        raise Skip(f"GPU {gpu.index}: NVML names nothing that can be licensed", Skip.UNSUPPORTED)
    if not any(licence.licensed for licence in licences):
        products = ", ".join(licence.product for licence in licences)
        yield UNLICENSED.found(f"GPU {gpu.index} ({products}) is not licensed", {"products": products}, gpu.index)


def summary(facts: Facts) -> str:
    products = {licence.product for gpu in facts.nvml.reachable.values() for licence in gpu.vgpu_licences if licence.licensed}
    return f"licensed: {', '.join(sorted(products))}"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="health",
    problems=(UNLICENSED,),
    needs=("nvml",),
    explained_by=("cuda-init",),
)
