"""No setting of this environment makes measurements or imports of frameworks fail or slow.

What it means
If a measurement or an import fails, gpudoctor repeats it in a fresh process without one suspected thing: a variable, an entry
of a search path, a low limit, a cache folder. What decides whether it works is the cause. Slow measurements are repeated if a
setting that can slow them down is present.

How it is judged
The runs are in the snapshot. A cause is confirmed by three of them: it fails as things are, it works without the cause, and it
fails again as things are. Without the last run the cause is likely. Several causes that only matter together are found by
halving. If it fails in the same way without all of them, the cause lies elsewhere, and the failure shows what was tried.

Known exceptions
Nothing is repeated on a GPU that is in use, at level quick, or with --no-experiments. Variables that choose GPUs, peers or an
environment stay: without them another program would run. Nothing outside the repeated process is changed.

References
https://en.wikipedia.org/wiki/Delta_debugging
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.experiments import telling, verdict
from gpudoctor.model import Check, Finding, Skip


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.experiments:
        raise Skip("nothing had to be repeated", Skip.NOT_APPLICABLE)
    yield from verdict.findings(facts)


def summary(facts: Facts) -> str:
    return "; ".join(f"{telling.subject(proof.subject)}: {telling.tried(proof)}" for proof in verdict.proofs(facts))


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=verdict.ALL,
    level="standard",
    tags=("performance",),
)
