"""Programs can run on CPUs near the GPUs.

What it means
On a machine with several sockets every GPU belongs to one of them. A program that runs on another socket sends all data over
the link between the sockets, which is slower, and slows down every other user of that link.

How it is judged
If there is more than one NUMA node: compares the CPUs that this process may use with those that NVML reports as near to each
GPU visible to CUDA. On bare metal, also whether the kernel knows the node of each GPU, and whether several sockets of x86
have at least as many nodes.

Known exceptions
Machines with one socket and one node are skipped. A hypervisor often hides the nodes of its GPUs. GPUs hidden by
CUDA_VISIBLE_DEVICES do not count: a job may be bound to one socket and its GPUs.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.launcher import CONTAINER, LOGIN, SERVICE, SLURM
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

LOOK = "nvidia-smi topo -m"

FAR = Problem(
    id="numa-affinity-wrong",
    title="This process is not allowed to run near all of its GPUs",
    why="All CPUs that it may use are on another NUMA node than the GPU. Every transfer crosses the link between the sockets.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Request CPUs near the GPUs from Slurm (sbatch has this option, too)",
            "srun --gres-flags=enforce-binding <program>",
            verify=LOOK,
            started_by=(SLURM,),
        ),
        Fix(
            "Run the job for these GPUs on their node (COMMAND: the job)",
            "numactl --cpunodebind=<node> --membind=<node> <program>",
            verify=LOOK,
            started_by=(LOGIN, SERVICE, CONTAINER),
        ),
        Fix(
            "Remove the restriction: taskset, cpuset of the container (--cpuset-cpus), Slurm's --cpu-bind",
            verify="taskset -pc $$",
        ),
    ),
)

UNKNOWN = Problem(
    id="gpu-numa-node-unknown",
    title="The firmware does not report which CPU a GPU belongs to",
    why="The machine has several NUMA nodes, but the kernel does not know the GPU's node. Libraries then place threads and "
    "memory without knowing what is near.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix("Update the board's firmware, and enable NUMA there (no node interleaving)", needs=("reboot",), verify=LOOK),
        Fix(
            "Until then: set the node by hand, until the next boot",
            "echo <numa_node> | sudo tee <numa_file>",
            on=("host",),
            needs=("root",),
        ),
    ),
)

MISSING = Problem(
    id="numa-nodes-missing",
    title="Fewer NUMA nodes than processor sockets",
    why="The kernel places memory without knowing which socket it belongs to, so that about half of it is on the far side of the "
    "link between the sockets, and nothing can be bound to the CPUs near a GPU.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix("Disable node interleaving in the firmware's setup, then reboot", on=("host",), needs=("reboot",), verify="lscpu"),
        look("Check that the kernel does not disable NUMA (numa=off)", "cat /proc/cmdline; ls -d /sys/devices/system/node/node*"),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    yield from judge_nodes(facts)
    if len(facts.system.numa_nodes) < 2:
        raise Skip("there is only one NUMA node")
    yield from judge_known(facts)
    yield from judge_near(facts)


def judge_nodes(facts: Facts) -> Iterator[Finding]:
    sockets = known(lambda: facts.inventory.sockets)
    nodes = len(facts.system.numa_nodes)
    is_x86 = known(lambda: facts.system.architecture) == "x86_64"  # Arm kernels count clusters of cores as sockets
    if sockets and nodes < sockets and is_x86 and not facts.system.hypervisor:
        off = ", and the kernel's command line has numa=off" * (
            "numa=off" in known(lambda: facts.system.command_line, "").split()
        )
        yield MISSING.found(f"{sockets} sockets, NUMA nodes: {nodes}{off}", {"sockets": sockets, "nodes": nodes})


def judge_known(facts: Facts) -> Iterator[Finding]:
    unknown = [gpu.address for gpu in facts.pci.gpus if gpu.numa_node is None]
    if unknown and not facts.system.hypervisor:
        file = f"/sys/bus/pci/devices/{unknown[0]}/numa_node"
        words = f"{len(facts.system.numa_nodes)} NUMA nodes, the node of {', '.join(unknown)} is not known"
        yield UNKNOWN.found(words, {"gpus": unknown, "numa_file": file})


def judge_near(facts: Facts) -> Iterator[Finding]:
    allowed = set(facts.limits.cpus)
    far = [gpu for gpu in visible(facts) if allowed.isdisjoint(gpu.cpu_affinity or allowed)]
    if far:
        indices = ", ".join(str(gpu.index) for gpu in far)
        words = f"this process may use {len(allowed)} of {facts.limits.cpu_count} CPUs, none of them near GPU {indices}"
        found = FAR.found(words, {"gpus": indices, "node": node_of(facts, far[0]), "cpus": len(allowed)})
        yield replace(found, because="cpu-affinity-narrow")


def visible(facts: Facts) -> list[Gpu]:
    """The GPUs that are visible to CUDA; all GPUs if none is."""
    shown = known(lambda: {device.bus_id for device in facts.cuda.devices}, set())
    return [gpu for gpu in facts.nvml.gpus if gpu.bus_id in shown or not shown]


def node_of(facts: Facts, gpu: Gpu) -> int:
    nodes = {function.address: function.numa_node for function in facts.pci.gpus}
    return nodes.get(gpu.bus_id) or 0


def summary(facts: Facts) -> str:
    return f"{len(facts.system.numa_nodes)} NUMA nodes, {len(facts.limits.cpus)} CPUs allowed, some of them near each GPU"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FAR, UNKNOWN, MISSING),
    needs=("nvml",),
    tags=("performance",),
)
