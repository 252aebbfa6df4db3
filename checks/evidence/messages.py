"""The logs and texts given as evidence contain no known error message.

What it means
Programs report what stops them with messages that stay the same for years: a traceback, a line from NCCL, an error of an engine.
Logs and pasted texts (`gpudoctor explain FILE`, `gpudoctor check --log FILE`) are searched for all messages that gpudoctor knows.

How it is judged
Each known message belongs to one problem. If another check or another message found its cause, it is shown as an effect of that
cause. If a message can have several causes, they are listed in the order in which to rule them out, with the command that
decides.

Known exceptions
A log shows the past, not the present state: if a check of this machine found the opposite, the report names that check as well.

References
https://docs.nvidia.com/deploy/xid-errors/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.experiments import verdict
from gpudoctor.judging.texts import answers, described
from gpudoctor.judging.texts.vetoes import is_over, weighed
from gpudoctor.model import Check, Finding, Skip


def judge(facts: Facts) -> Iterator[Finding]:
    texts = facts.texts.all
    if not texts:
        raise Skip("no log or text was given (--log FILE)")
    shown = tuple(finding.problem.id for finding in facts.once(described.findings)) if facts.texts.alone else ()
    proved = tuple(finding.problem.id for finding in verdict.of_command(facts))
    for finding in facts.once(answers.of_texts):
        if is_over(finding, facts):
            continue
        known = weighed(finding, shown, facts)
        yield replace(known, causes=(*proved, *known.causes))


def summary(facts: Facts) -> str:
    lines = sum(text.total_lines for text in facts.texts.all)
    return f"no known error message in {lines} lines"


CHECK = Check(
    judge=judge,
    summary=summary,
)
