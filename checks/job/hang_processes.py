"""No process of the program waits for something that will not happen.

What it means
A program that does not move has at least one process that waits for something outside its control: a lock, a file system, a pipe,
a peer, a person, its GPU. Processes that only wait for that one are not at fault.

How it is judged
gpudoctor hang looks at the program for some seconds: the state of each thread, its system call and what is at the other end
of the descriptor (/proc), its Python stack (py-spy), waiting file locks and the freezer of its cgroup. A process counts as
standing still if at least 98 % of its samples have the same stack, or if it used no processor time. Each wait is followed to
the process that it waits for; the last one in that chain is reported.

Known exceptions
Without py-spy, or without permission to read a process of another user, a thread that uses the processor is not judged. A program
that sleeps on purpose stands still too, but is reported by the check hang only, without a cause. The name of a lock is not known:
only who waits.

References
https://man7.org/linux/man-pages/man5/proc.5.html
https://github.com/benfred/py-spy
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.jobs.hanging import problems, verdict
from gpudoctor.judging.jobs.hanging.standing import BEHIND
from gpudoctor.model import Check, Finding, Skip


def judge(facts: Facts) -> Iterator[Finding]:
    look = facts.job.stuck.look
    if not look.processes:
        raise Skip("only files were given (gpudoctor hang --pid PID looks at a program)")
    odd = [rank for parting in verdict.partings(look) if parting.kind == BEHIND for rank in parting.odd]
    yield from verdict.of_processes(look)
    yield from verdict.of_gpus(look, odd)


def summary(facts: Facts) -> str:
    look = facts.job.stuck.look
    number = len(look.processes)
    return f"{number} {'process' if number == 1 else 'processes'}: none waits for something that will not happen"


CHECK = Check(judge=judge, summary=summary, problems=problems.PROBLEMS)
