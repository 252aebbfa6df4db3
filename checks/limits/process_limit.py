"""The limit on processes and threads leaves room for data loaders and thread pools.

What it means
Linux counts the threads of all of a user's processes against `ulimit -u`. Each program for GPUs starts dozens: thread pools as
large as the machine has cores, data loaders, NCCL. At the limit they fail with "can't start new thread" or "Resource
temporarily unavailable".

How it is judged
Warns if the limit is below 512, or below four for each core that this process may use.

Known exceptions
The kernel does not apply this limit to root. Limits of a container (pids.max) are not part of it.

References
https://man7.org/linux/man-pages/man2/getrlimit.2.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.limits import PROCESSES
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

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


def judge(facts: Facts) -> Iterator[Finding]:
    if known(lambda: facts.devices.identity.is_root, False):
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
    soft, _ = facts.limits.processes
    return f"{'unlimited' if soft is None else soft} processes and threads"


CHECK = Check(judge=judge, summary=summary, problems=(FEW,))
