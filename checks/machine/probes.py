"""Every probe that gpudoctor ran on this machine answered.

What it means
Each probe runs in a separate process with a time limit. If a probe crashes or hangs, the report has gaps. What it waited for is
often the fault itself: an unreachable network file system, or a driver that is stuck in the kernel.

How it is judged
The check reports every probe that timed out or died, with the step that it was in.

Known exceptions
The checks nvml and cuda-init report probes of NVML and CUDA. A very busy machine may answer too late; a second run shows that.

References
https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Finding, Problem, Reply, Status

PREFIX = "probe:"
JUDGED_ELSEWHERE = ("nvml", "cuda")
WORDS = {"timeout": "timed out", "died": "died"}

NO_ANSWER = Problem(
    id="probe-no-answer",
    title="A probe of this machine did not answer",
    why="Its answers are missing from this report, so the checks that need them could not run. What the probe waited for may "
    "be the fault itself.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look(
            "Look for processes that are stuck in the kernel (state D), and what they wait for",
            "ps -eo pid,stat,wchan:32,comm | grep -E ' D'",
        ),
        look("Look for file systems that do not answer", "timeout 5 df -h > /dev/null || echo 'a file system does not answer'"),
        look("Run the check again when the machine is less busy", "gpudoctor check"),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    probes = asked(facts)
    if not probes:
        facts.replies.get("probe:system")  # raises, and says why
    for name, reply in probes.items():
        if reply.status in WORDS:
            words = f"{name} {WORDS[reply.status]}" + f": {reply.detail}" * bool(reply.detail)
            found = NO_ANSWER.found(words, {"probe": name, "detail": reply.detail})
            yield replace(found, because="temporary-space-does-not-answer" if name == "limits" else "")


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
