"""What the output of a failed program means, judged as `gpudoctor explain` judges a text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.texts import of_words
from gpudoctor.judging.texts import messages
from gpudoctor.judging.texts.first_errors import PROBLEM as OWN_ERROR
from gpudoctor.model import Confidence, Finding

SUREST = (Confidence.CONFIRMED, Confidence.LIKELY, Confidence.UNKNOWN)


def findings(facts: Facts, name: str, words: str) -> Iterator[Finding]:
    """The known messages in the words, the surest first, as clues: each is shown only if it explains a failure.

    An error that no message describes is left out: the failure shows it anyway.
    """
    found = (each for each in messages.findings((of_words(name, words),), facts.problems) if not each.is_clue)
    told = [replace(each, is_clue=True) for each in found if each.problem.id != OWN_ERROR]
    yield from sorted(told, key=lambda each: SUREST.index(each.confidence))
