"""This process may use enough CPUs to feed its GPUs.

What it means
Every GPU needs a CPU that launches its kernels, and a few more to load data. All threads of a process that is pinned to one CPU
share it, and the GPUs wait.

How it is judged
The check counts the CPUs that this process may run on (taskset, cpuset). If the machine has more than that, it warns about one
CPU on a machine with at least four, or fewer than two for each GPU.

Known exceptions
A small machine is not judged by its size. A quota is judged by cgroup-limits, the wrong NUMA node by numa.

References
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.launcher import CONTAINER, LOGIN, SERVICE, SLURM
from gpudoctor.fixes.engines import BY_COMMAND, POD
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

MANY = 4
CPUS_PER_GPU = 2
WANTED_PER_GPU = 8

NARROW = Problem(
    id="cpu-affinity-narrow",
    title="This process is pinned to too few CPUs",
    why="All threads of a job, its data loaders and the kernel launches share these CPUs, and the GPUs wait for them.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Request more CPUs for each task of the Slurm job (sbatch has this option, too)",
            "srun --cpus-per-task=<job_cpus> <program>",
            verify="nproc",
            started_by=(SLURM,),
        ),
        Fix(
            "Start the container again with more CPUs",
            "<docker> run --rm <all_gpus> --cpuset-cpus=0-<last> <image>",
            "disruptive",
            verify="nproc",
            on=("container",),
            engines=BY_COMMAND,
            started_by=(CONTAINER,),
        ),
        Fix(
            "Request more CPUs for the pod; with the CPU manager's static policy they are its own (resources.limits.cpu)",
            verify="nproc",
            on=("container",),
            engines=POD,
            started_by=(CONTAINER,),
        ),
        Fix(
            "Find where the service's unit limits its CPUs, and remove that",
            "systemctl show <unit> -p CPUAffinity -p AllowedCPUs",
            kind="read",
            started_by=(SERVICE,),
        ),
        Fix(
            "Allow this shell and its children to use all CPUs",
            "taskset -apc 0-<last> $$",
            verify="nproc",
            where="shell",
            started_by=(LOGIN,),
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    allowed, every = len(facts.limits.cpus), facts.limits.cpu_count
    if allowed == 1 and every >= MANY:
        yield found(facts, f"1 of {every} CPUs may be used")
    elif allowed < every and allowed < CPUS_PER_GPU * facts.nvml.count:
        yield found(facts, f"{allowed} of {every} CPUs may be used, for {facts.nvml.count} GPUs")


def found(facts: Facts, words: str) -> Finding:
    every, gpus = facts.limits.cpu_count, known(lambda: facts.nvml.count) or 1
    wanted = max(CPUS_PER_GPU, min(every, WANTED_PER_GPU * gpus))
    return NARROW.found(words, {"cpus": list(facts.limits.cpus), "last": every - 1, "job_cpus": wanted})


def summary(facts: Facts) -> str:
    return f"{len(facts.limits.cpus)} of {facts.limits.cpu_count} CPUs"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NARROW,),
    tags=("performance", "slurm"),
)
