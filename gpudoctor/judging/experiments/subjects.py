"""What is worth an experiment: measurements and imports that failed, and figures that are low."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.experiments.outcome import CHANGING, Outcome
from gpudoctor.judging.measured import faults
from gpudoctor.model import Check, Diagnosis, Figure, Reply, Report, Skip

FAILED = ("error", "died", "timeout")
LOW = 0.75  # of what is expected
EXPLAINED = {problem.id for problem in faults.ALL if problem is not faults.SLOW}
# No setting causes these, and more load can make them worse.
OF_HARDWARE = re.compile(
    r"""
    ECC_UNCORRECTABLE | CUDA_ERROR_CONTAINED | uncorrectable\ ECC | fallen\ off\ the\ bus
    """,
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True)
class Subject:
    """id: "gemm:gpu0" or "import:torch". first: its outcome. also: others that failed in the same way. figure: if it is slow,
    the figure of a check that is low, and what its finding said."""

    id: str
    first: Outcome
    also: tuple[str, ...] = ()
    check: str = ""
    figure: Figure | None = None
    said: str = ""

    @property
    def name(self) -> str:
        """The workload, or the framework that is imported."""
        return self.id.removeprefix("import:") if self.is_import else self.id.rpartition(":")[0]

    @property
    def is_import(self) -> bool:
        return self.id.startswith("import:")


def outcome(reply: Reply) -> Outcome:
    """The outcome of a workload or an import. What was skipped did not work."""
    if reply.status == "ok":
        return Outcome(True, seconds=reply.seconds)
    prints = str(reply.value.get("prints", "")) if isinstance(reply.value, dict) else ""
    words = "\n".join(filter(None, (prints, "" if prints.endswith(_error(reply)) else reply.detail)))
    return Outcome(False, reply.detail.partition(" in ")[0] if reply.status == "died" else reply.status, words, reply.seconds)


def _error(reply: Reply) -> str:
    """The exception's own words; a traceback ends with them."""
    return reply.detail.rpartition(" in ")[0] or reply.detail


def failed(measured: Mapping[str, Reply]) -> tuple[Subject, ...]:
    """What failed; of several failures alike the quickest one stands for all. Imports come first."""
    alike: dict[str, list[tuple[str, Reply]]] = {}
    for id, reply in measured.items():
        if reply.status in FAILED and ":" in id and not OF_HARDWARE.search(reply.detail):
            kind = CHANGING.sub("#", _error(reply).partition("\n")[0])
            alike.setdefault(f"{reply.status} {kind}", []).append((id, reply))
    found = [_together(sorted(each, key=lambda pair: pair[1].seconds)) for each in alike.values()]
    return tuple(sorted(found, key=lambda subject: (not subject.is_import, subject.first.seconds)))


def _together(alike: list[tuple[str, Reply]]) -> Subject:
    (id, reply), *rest = alike
    return Subject(id, outcome(reply), tuple(other for other, _ in rest))


def slow(report: Report, facts: Facts, checks: Mapping[str, Check]) -> tuple[Subject, ...]:
    """Each check with a finding about a figure of its only workload, unless the hardware explains it."""
    found: dict[str, Subject] = {}
    for entry in report.diagnosis:
        check = checks.get(entry.check)
        if not check or len(check.workloads) != 1 or entry.problem in EXPLAINED or entry.on_host:
            continue
        figure = _of_finding(entry, known(lambda check=check: facts.once(check.figures), ()))  # type: ignore[misc]
        if figure:
            where = "all" if figure.gpu is None else f"gpu{figure.gpu}"
            first = Outcome(True, metric=figure.value, unit=figure.unit, seconds=facts.measured.seconds(check.workloads))
            found.setdefault(check.id, Subject(f"{check.workloads[0]}:{where}", first, (), check.id, figure, entry.message))
    return tuple(found.values())


def _of_finding(entry: Diagnosis, figures: Iterable[Figure]) -> Figure | None:
    """The figure that a finding names, else the lowest one."""
    able = [figure for figure in figures if not figure.wrong and entry.gpu in (figure.gpu, None)]
    low = [figure for figure in able if (figure.share or 1.0) < LOW]
    return next(
        (figure for figure in able if figure.what in entry.message), min(low, key=lambda low: low.share or 0, default=None)
    )


def with_figure(outcome: Outcome, subject: Subject, facts: Facts, check: Check) -> Outcome:
    """The outcome of a run of a slow subject, with the same figure of it. facts: those of this run."""
    assert subject.figure
    if not outcome.worked:
        return outcome
    try:
        value = next((figure.value for figure in _figures(facts, check) if _is_same(figure, subject.figure)), None)
    except Skip:
        value = None
    return replace(outcome, worked=value is not None, metric=value, unit=subject.figure.unit)


def _figures(facts: Facts, check: Check) -> Iterator[Figure]:
    yield from facts.once(check.figures)


def _is_same(one: Figure, other: Figure) -> bool:
    return (one.what, one.gpu, one.unit) == (other.what, other.gpu, other.unit)
