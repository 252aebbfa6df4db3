"""How many of the applicable checks ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpudoctor.model import Coverage, Result, Skip, Status


def coverage(results: Iterable[Result], of_texts: bool = False, of_job: bool = False) -> Coverage:
    """How many checks ran, and why others did not. of_texts: the input was texts, not a machine. of_job: a program that runs."""
    results = list(results)
    skipped = Counter(result.reason or "" for result in results if result.status is Status.SKIP)
    applicable = len(results) - skipped.pop(Skip.NOT_APPLICABLE, 0)
    blocked = sum(result.status is Status.BLOCKED for result in results)
    errors = sum(result.status is Status.ERROR for result in results)
    ran = applicable - skipped.total() - blocked - errors
    if of_texts:
        said = f"Only texts were analysed, not a machine: {ran} of {applicable} checks could use them."
        return Coverage(ran, applicable, dict(skipped), said)
    if of_job:
        said = f"Only a program was examined, not the machine (gpudoctor check): {ran} of {applicable} checks could judge it."
        return Coverage(ran, applicable, dict(skipped), said)
    parts = [f"{ran} of {applicable} applicable checks ran"]
    parts += [f"{count} {_SKIPPED.get(kind, kind)}" for kind, count in sorted(skipped.items())]
    parts += [f"{blocked} blocked until the problem above is fixed"] * bool(blocked) + [f"{errors} stopped with an error"] * bool(
        errors
    )
    return Coverage(ran, applicable, dict(skipped), "; ".join(parts) + ".")


_SKIPPED = {
    Skip.UNSUPPORTED: "not supported here",
    Skip.NOT_PERMITTED: "skipped for lack of permission (try as root)",
    Skip.NOT_INSTALLED: "skipped because something it needs is not installed",
    Skip.NO_ANSWER: "got no answer",
    Skip.NOT_ASKED: "not asked when this was saved",
    Skip.NOT_MEASURED: "not measured",
    Skip.BUSY: "skipped because the GPU is busy",
    Skip.CUT_OFF: "not run, because the run was interrupted",
    Skip.IGNORED: "ignored",
}
