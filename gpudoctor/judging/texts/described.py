"""What the outputs of a text show, or else its words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.texts import rules
from gpudoctor.model import Finding, Problem


def findings(facts: Facts) -> Iterator[Finding]:
    from gpudoctor.judging.texts import symptoms  # with regular expressions of its own, for texts alone

    found = facts.once(rules.findings)
    yield from found or facts.once(symptoms.findings)


def problems() -> tuple[Problem, ...]:
    """Those that only these rules find."""
    from gpudoctor.judging.texts import symptoms

    return (*rules.problems(), *symptoms.PROBLEMS)
