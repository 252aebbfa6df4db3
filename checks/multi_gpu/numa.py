"""Programs may run on processors that are near to the GPUs.

What it means
On a machine with several sockets every GPU belongs to one of them. A program that runs on another sends all data over the
link between the sockets, which is slower, and slows everybody who uses it.

How it is judged
Where there is more than one NUMA node: the CPUs that this process may use against those that NVML gives as near to each GPU
that CUDA shows it, and on bare metal whether the kernel knows the node of each GPU.

Known exceptions
Machines with one node have nothing to judge. A hypervisor often hides the nodes of its GPUs. GPUs that CUDA_VISIBLE_DEVICES
hides do not count: a job may be tied to one socket and to its GPUs.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

LOOK = "nvidia-smi topo -m"

FAR = Problem(
    id="numa-affinity-wrong",
    title="This process may not run near to all of its GPUs",
    why="Its CPUs are all on another NUMA node than the GPU. Every transfer crosses the link between the sockets.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Run the job for these GPUs on their node (COMMAND: the job)",
            "numactl --cpunodebind=<node> --membind=<node> COMMAND",
            verify=LOOK,
        ),
        Fix(
            "Take the restriction away: taskset, cpuset of the container (--cpuset-cpus), Slurm's --cpu-bind",
            verify="taskset -pc $$",
        ),
    ),
)

UNKNOWN = Problem(
    id="gpu-numa-node-unknown",
    title="The firmware does not say to which processor a GPU belongs",
    why="The machine has several NUMA nodes, and the kernel knows none for the GPU. Libraries then place threads and memory "
    "without knowing what is near.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix("Update the firmware of the board, and switch NUMA on in it (no node interleaving)", needs=("reboot",), verify=LOOK),
        Fix(
            "Until then: tell the kernel, until the next boot (NODE: from the board's manual)",
            "echo NODE | sudo tee <numa_file>",
            on=("host",),
            needs=("root",),
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if len(facts.system.numa_nodes) < 2:
        raise Skip("there is one NUMA node")
    yield from judge_known(facts)
    yield from judge_near(facts)


def judge_known(facts: Facts) -> Iterator[Finding]:
    unknown = [gpu.address for gpu in facts.pci.gpus if gpu.numa_node is None]
    if unknown and not facts.system.hypervisor:
        file = f"/sys/bus/pci/devices/{unknown[0]}/numa_node"
        words = f"{len(facts.system.numa_nodes)} NUMA nodes, none known for {', '.join(unknown)}"
        yield UNKNOWN.found(words, {"gpus": unknown, "numa_file": file})


def judge_near(facts: Facts) -> Iterator[Finding]:
    allowed = set(facts.limits.cpus)
    far = [gpu for gpu in visible(facts) if allowed.isdisjoint(gpu.cpu_affinity or allowed)]
    if far:
        indices = ", ".join(str(gpu.index) for gpu in far)
        words = f"this process may use {len(allowed)} of {facts.limits.cpu_count} CPUs, none of them near to GPU {indices}"
        yield FAR.found(words, {"gpus": indices, "node": node_of(facts, far[0]), "cpus": len(allowed)})


def visible(facts: Facts) -> list[Gpu]:
    """The GPUs that CUDA shows; all where it shows none."""
    shown = known(lambda: {device.bus_id for device in facts.cuda.devices}, set())
    return [gpu for gpu in facts.nvml.gpus if gpu.bus_id in shown or not shown]


def node_of(facts: Facts, gpu: Gpu) -> int:
    nodes = {function.address: function.numa_node for function in facts.pci.gpus}
    return nodes.get(gpu.bus_id) or 0


def summary(facts: Facts) -> str:
    return f"{len(facts.system.numa_nodes)} NUMA nodes, {len(facts.limits.cpus)} CPUs allowed, some near to every GPU"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FAR, UNKNOWN),
    needs=("nvml",),
)
