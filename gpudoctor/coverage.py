"""How much of what could be looked at was looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpudoctor.model import Coverage, Result, Skip, Status


def coverage(results: Iterable[Result], of_texts: bool = False) -> Coverage:
    """The honest sentence about how much was looked at. of_texts: where that was no machine."""
    results = list(results)
    skipped = Counter(result.reason or "" for result in results if result.status is Status.SKIP)
    applicable = len(results) - skipped.pop(Skip.NOT_APPLICABLE, 0)
    blocked = sum(result.status is Status.BLOCKED for result in results)
    errors = sum(result.status is Status.ERROR for result in results)
    ran = applicable - skipped.total() - blocked - errors
    if of_texts:
        said = f"No machine was asked: {ran} of {applicable} checks could judge what the texts tell."
        return Coverage(ran, applicable, dict(skipped), said)
    parts = [f"{ran} of {applicable} applicable checks ran"]
    parts += [f"{count} {_SKIPPED.get(kind, kind)}" for kind, count in sorted(skipped.items())]
    parts += [f"{blocked} waiting for a fix above"] * bool(blocked) + [f"{errors} broke"] * bool(errors)
    return Coverage(ran, applicable, dict(skipped), "; ".join(parts) + ".")


_SKIPPED = {
    Skip.UNSUPPORTED: "not supported here",
    Skip.NOT_PERMITTED: "not permitted (try as root)",
    Skip.NOT_INSTALLED: "without something that is not installed",
    Skip.NO_ANSWER: "without an answer",
    Skip.NOT_MEASURED: "not measured (gpudoctor check without --level quick measures)",
    Skip.BUSY: "not on a busy GPU",
    Skip.CUT_OFF: "missing, because the run was cut off",
}
