"""What Python answers in a text, where no message says it: torch.cuda.is_available() is False. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from gpudoctor.facts import Facts
from gpudoctor.judging.texts import messages
from gpudoctor.knowledge.messages import Message
from gpudoctor.knowledge.messages import messages as known_messages
from gpudoctor.model import Confidence, Finding, Status

BLIND = {"torch.cuda.is_available()": "False", "torch.cuda.device_count()": "0"}
SAYS_NO_GPU = "torch-says-no-gpu"


@cache
def _says_no_gpu() -> Message:
    return next(message for message in known_messages() if message.id == SAYS_NO_GPU)


def of_texts(facts: Facts) -> Iterator[Finding]:
    """The findings of all messages; without any, of an answer that only a command shows. Any failure explains it."""
    found = list(messages.findings(facts.texts.whole, facts.problems))
    says = _says_no_gpu()
    if facts.shown.is_mac:
        yield from (finding for finding in found if finding.problem.id != says.problem)
        return
    yield from found
    asked = next((asked for asked, value in BLIND.items() if facts.shown.answers.get(asked) == value), None)
    if asked and all(finding.is_clue for finding in found):
        evidence = {"said": f"{asked} is {BLIND[asked]}", "could_be": list(says.causes), "decide": says.decide}
        others = (id for id, problem in facts.problems.items() if problem.status is Status.FAIL)
        yield Finding(
            facts.problems[says.problem],
            says.words,
            evidence,
            confidence=Confidence.UNKNOWN,
            causes=(says.problem, *dict.fromkeys((*says.causes, *others))),
        )
