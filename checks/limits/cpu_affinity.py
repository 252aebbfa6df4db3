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
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Status

MANY = 4
CPUS_PER_GPU = 2

NARROW = Problem(
    id="cpu-affinity-narrow",
    title="This process is pinned to too few CPUs",
    why="All threads of a job, its data loaders and the kernel launches share these CPUs, and the GPUs wait for them.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Allow this shell and its children to use all CPUs", "taskset -apc 0-<last> $$", verify="nproc", where="shell"),
        Fix(
            "If that is refused: start the container with more --cpuset-cpus, or ask Slurm for more --cpus-per-task",
            verify="nproc",
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
    return NARROW.found(words, {"cpus": list(facts.limits.cpus), "last": facts.limits.cpu_count - 1})


def summary(facts: Facts) -> str:
    return f"{len(facts.limits.cpus)} of {facts.limits.cpu_count} CPUs"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NARROW,),
)
