"""The texts that were given as evidence tell of no fault.

What it means
Programs say what stops them, in words that stay the same for years: a traceback, a line of NCCL, a refusal of an engine. Logs and
pasted texts (`gpudoctor explain FILE`, `gpudoctor check --log FILE`) are searched for all such messages that gpudoctor knows.

How it is judged
Each known message stands for one problem. Where another check, or another message, found what explains it, it is told as its
effect. A message that does not decide between several causes is told as such, with these in the order in which they are to be
ruled out and the command that decides.

Known exceptions
A log tells what was, not what is: a check of this machine that finds the opposite is named beside it.

References
https://docs.nvidia.com/deploy/xid-errors/
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.texts import messages
from gpudoctor.model import Check, Finding, Skip


def judge(facts: Facts) -> Iterator[Finding]:
    texts = facts.texts.all
    if not texts:
        raise Skip("no text was given as evidence (--log FILE)")
    yield from messages.findings(texts, facts.problems)


def summary(facts: Facts) -> str:
    lines = sum(text.total_lines for text in facts.texts.all)
    return f"no known message in {lines} lines"


CHECK = Check(
    judge=judge,
    summary=summary,
)
