"""The limit on processes and threads leaves room for data loaders and thread pools.

What it means
Linux counts the threads of all of a user's processes against `ulimit -u`. Each program for GPUs starts dozens: thread pools as
large as the machine has cores, data loaders, NCCL. At the limit they fail with "can't start new thread" or "Resource
temporarily unavailable".

How it is judged
Fails if the kernel refused a process to gpudoctor itself: at `ulimit -u`, or at the limit of the cgroup (pids.max), which
containers and systemd set. Warns if `ulimit -u` is below 512, or below four for each core that this process may use, or if less
than 512 are left below pids.max.

Known exceptions
The kernel does not apply `ulimit -u` to root.

References
https://man7.org/linux/man-pages/man2/getrlimit.2.html
https://docs.kernel.org/admin-guide/cgroup-v2.html#pid
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.launcher import CONTAINER, LOGIN, SERVICE
from gpudoctor.fixes.common import look
from gpudoctor.fixes.engines import BY_COMMAND, POD
from gpudoctor.fixes.limits import PROCESSES
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

LEAST, FOR_EACH_CORE = 512, 4

FEW = Problem(
    id="process-limit-low",
    title="The limit on processes and threads is low (ulimit -u)",
    why="Threads count too, those of all programs of this user. Thread pools, data loaders and NCCL start dozens in each "
    'process and fail with "can\'t start new thread".',
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix("Raise it in this shell, as far as the hard limit allows", "ulimit -u <possible>", verify="ulimit -u", where="shell"),
        *PROCESSES.ways,
    ),
    references=("https://man7.org/linux/man-pages/man2/getrlimit.2.html",),
)
IN_CGROUP = (
    Fix(
        "In a container: start it without this limit",
        "<docker> run <all_gpus> --pids-limit=-1 <image>",
        "disruptive",
        verify="cat /sys/fs/cgroup/pids.max",
        on=("container",),
        engines=BY_COMMAND,
        started_by=(CONTAINER,),
    ),
    Fix(
        "On the node: raise podPidsLimit in the kubelet's configuration, then restart the kubelet",
        on=("container",),
        engines=POD,
        started_by=(CONTAINER,),
    ),
    Fix(
        "In a systemd service: lift the limit of its unit (TasksMax)",
        "sudo systemctl set-property <unit> TasksMax=infinity",
        verify="systemctl show <unit> -p TasksMax",
        kind="set",
        needs=("root",),
        undo="sudo systemctl revert <unit>",
        started_by=(SERVICE,),
    ),
    Fix(
        "In a login: lift the limit of your slice (TasksMax)",
        'sudo systemctl set-property "user-$(id -u).slice" TasksMax=infinity',
        verify='systemctl show "user-$(id -u).slice" -p TasksMax',
        kind="set",
        needs=("root",),
        undo='sudo systemctl revert "user-$(id -u).slice"',
        started_by=(LOGIN,),
        on=("host",),
    ),
)
WHO = look(
    "Find out whose processes and threads they are, and end those that are not needed",
    "ps -eLo user= | sort | uniq -c | sort -rn",
)
REACHED = Problem(
    id="process-limit-reached",
    title="No more processes or threads can be started",
    why="Linux counts the processes and threads of a user against `ulimit -u`, and those of a container, service or login "
    'against the pids.max of its cgroup. At the limit, programs fail with "can\'t start new thread" or "Resource temporarily '
    'unavailable". gpudoctor met it, too, so that a part of this report is missing.',
    action=Action.FIX_CONFIG,
    fixes=(WHO, *PROCESSES.ways, *IN_CGROUP),
    references=FEW.references,
)
CGROUP = Problem(
    id="cgroup-process-limit-low",
    title="The cgroup leaves room for few processes and threads (pids.max)",
    why="The limit counts all processes and threads of a container, service or login. Thread pools, data loaders and NCCL start "
    'dozens in each process and fail with "can\'t start new thread".',
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    latent=True,
    fixes=(*IN_CGROUP, WHO),
    references=("https://docs.kernel.org/admin-guide/cgroup-v2.html#pid",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if refused := facts.limits.refused_processes:
        yield reached(facts, refused)
        return
    yield from for_each((of_user, in_cgroup), lambda part: part(facts))


def reached(facts: Facts, refused: str) -> Finding:
    soft, hard = (None, None) if is_root(facts) else known(lambda: facts.limits.processes, (None, None))
    most, now = known(lambda: facts.limits.cgroup_tasks) or (None, None)
    evidence = {"soft": soft, "hard": hard, "pids_max": most, "pids_current": now}
    limits = [f"this user may have {soft} (ulimit -u)"] * (soft is not None)
    limits += [f"the cgroup has {now} of at most {most} (pids.max)"] * (most is not None)
    is_of_cgroup = most is not None and (soft is None or most < soft)
    fixes = (WHO, *(IN_CGROUP if is_of_cgroup else PROCESSES.raised(soft, hard)))
    words = f"the kernel refused a process to gpudoctor: {refused}" + "".join(f"; {limit}" for limit in limits)
    return replace(REACHED, fixes=fixes).found(words, {name: value for name, value in evidence.items() if value is not None})


def in_cgroup(facts: Facts) -> Iterator[Finding]:
    most, now = facts.limits.cgroup_tasks or (None, 0)
    if most is not None and most - now < LEAST:
        yield CGROUP.found(f"{now} of at most {most} processes and threads run", {"pids_max": most, "pids_current": now})


def is_root(facts: Facts) -> bool:
    return known(lambda: facts.devices.identity.is_root, False)


def of_user(facts: Facts) -> Iterator[Finding]:
    if is_root(facts):
        raise Skip("the limit on processes does not apply to root")
    soft, hard = facts.limits.processes
    cores = known(lambda: len(facts.limits.cpus), 0)
    if soft is not None and soft < max(LEAST, FOR_EACH_CORE * cores):
        possible = 65536 if hard is None else min(hard, 65536)
        here = FEW.fixes[:1] if possible > soft else ()
        evidence = {"soft": soft, "hard": "unlimited" if hard is None else hard, "possible": possible}
        fixes = (*here, *PROCESSES.raised(soft, hard))
        words = f"{soft} processes and threads may run at once" + (f", on {cores} cores" if cores else "")
        yield replace(FEW, fixes=fixes).found(words, evidence)


def summary(facts: Facts) -> str:
    soft = None if is_root(facts) else facts.limits.processes[0]
    most, _ = known(lambda: facts.limits.cgroup_tasks) or (None, 0)
    least = min((limit for limit in (soft, most) if limit is not None), default=None)
    return f"{'unlimited' if least is None else least} processes and threads"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(FEW, REACHED, CGROUP),
    tags=("slurm",),
)
