"""The cgroup of this process leaves it enough memory and CPU time for a GPU job.

What it means
Containers, Slurm and systemd limit memory and CPU time. A model passes through host memory on its way to the GPU. If the limit is
lower than the model needs, the kernel kills the process. With less than one CPU, everything is slow.

How it is judged
The tightest limit between this process's cgroup and the root counts. Memory: the limit is lower than the memory of the largest
GPU, and the machine has more. CPU: the quota is less than one CPU.

Known exceptions
Services that load small models, or load large models in pieces, need less memory than the GPU has. A limit close to the memory
of the machine is the machine's size, not a restriction.

References
https://docs.nvidia.com/deeplearning/nccl/archives/nccl_2262/user-guide/docs/_sources/troubleshooting.rst.txt
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.engines import again
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

MIB = 1 << 20
MACHINE_SHARE = 0.9  # a limit above this share of the machine's memory restricts nothing

MEMORY = Problem(
    id="memory-limit-below-gpu",
    title="The memory limit is lower than the GPU's memory",
    why="A model that fits into the GPU may exceed the memory that this process is allowed to use. The kernel then kills the "
    "process while the model loads ('Killed', exit code 137).",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        *again(
            "Restart the container with a higher memory limit",
            "run <all_gpus> --memory=<gpu_mib>m <image>",
            kubectl="set resources deployment/<chosen_name> --limits=memory=<gpu_mib>Mi",
            on=("container",),
        ),
        Fix(
            "In Kubernetes, raise resources.limits.memory; under Slurm, request more (--mem)",
            verify="cat /sys/fs/cgroup/memory.max",
        ),
    ),
)

CPU = Problem(
    id="cpu-quota-below-one",
    title="This process gets less than one CPU",
    why="A CPU quota pauses the process for a part of every period. Launching kernels and loading data are slow, and the GPU "
    "waits.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        *again(
            "Restart the container with more CPUs",
            "run <all_gpus> --cpus=8 <image>",
            kubectl="set resources deployment/<chosen_name> --limits=cpu=8",
            on=("container",),
        ),
        Fix(
            "In Kubernetes, raise or remove resources.limits.cpu; for a systemd unit, raise CPUQuota",
            verify="cat /sys/fs/cgroup/cpu.max",
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    cpus = facts.limits.cgroup_cpus
    if cpus is not None and cpus < 1:
        yield CPU.found(f"the quota is {cpus:g} CPUs", {"quota_cpus": cpus})
    yield from judge_memory(facts)


def judge_memory(facts: Facts) -> Iterator[Finding]:
    limit = facts.limits.cgroup_memory_bytes
    if limit is None:
        return
    sizes = [gpu.memory_total_mib for gpu in facts.nvml.reachable.values()]
    if not sizes:
        raise Skip("no GPU memory size to compare the limit with")
    allowed, gpu = limit // MIB, max(sizes)
    if allowed < gpu and allowed < MACHINE_SHARE * facts.system.memory_mib["MemTotal"]:
        words = f"the limit is {allowed} MiB, a GPU has {gpu} MiB"
        yield MEMORY.found(words, {"limit_mib": allowed, "gpu_mib": gpu}, confidence=Confidence.LIKELY)


def summary(facts: Facts) -> str:
    memory, cpus = facts.limits.cgroup_memory_bytes, facts.limits.cgroup_cpus
    limits = ([f"{memory // MIB} MiB"] if memory else []) + ([f"{cpus:g} CPUs"] if cpus else [])
    return f"at most {' and '.join(limits)} by cgroup" if limits else "no limit by cgroup"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(MEMORY, CPU),
    needs=("nvml",),
    tags=("kubernetes", "memory", "performance", "slurm"),
)
