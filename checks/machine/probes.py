"""Every question that gpudoctor asked this machine was answered.

What it means
Each group of questions runs in a process of its own with a time limit. One that crashes or hangs leaves holes in what could
be judged, and what it waited for is often itself the fault: a dead network file system, a driver stuck in the kernel.

How it is judged
Every probe that ran into its time limit or died, with the step that it was in.

Known exceptions
NVML and CUDA are judged by the checks nvml and cuda-init. A very busy machine may answer too late; asking again shows it.

References
https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Problem, Reply, Status

PREFIX = "probe:"
JUDGED_ELSEWHERE = ("nvml", "cuda")
WORDS = {"timeout": "ran out of time", "died": "died"}

NO_ANSWER = Problem(
    id="probe-no-answer",
    title="A part of this machine did not answer",
    why="What was asked there is missing from this report, so that the checks that read it could not judge. What was waited for "
    "may be the fault itself.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look(
            "Look for processes that are stuck in the kernel (state D), and for what they wait",
            "ps -eo pid,stat,wchan:32,comm | grep -E ' D'",
        ),
        look("Look for file systems that do not answer", "timeout 5 df -h > /dev/null || echo 'a file system does not answer'"),
        look("Ask again when the machine is less busy", "gpudoctor check"),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    probes = asked(facts)
    if not probes:
        facts.replies.get("probe:system")  # raises, and says why
    for name, reply in probes.items():
        if reply.status in WORDS:
            words = f"{name} {WORDS[reply.status]}" + f": {reply.detail}" * bool(reply.detail)
            yield NO_ANSWER.found(words, {"probe": name, "detail": reply.detail})


def asked(facts: Facts) -> dict[str, Reply]:
    replies = facts.replies.starting_with(PREFIX)
    names = {question.removeprefix(PREFIX): reply for question, reply in sorted(replies.items())}
    return {name: reply for name, reply in names.items() if name not in JUDGED_ELSEWHERE}


def summary(facts: Facts) -> str:
    return f"{len(asked(facts))} probes answered"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_ANSWER,),
)
