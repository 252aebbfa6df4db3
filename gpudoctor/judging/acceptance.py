"""What a report for the acceptance of a machine says: its parts, what was expected of them, and every figure by each rule."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.choices import ACCEPTANCE
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.judging import expected
from gpudoctor.judging.measured import burning, shortfalls, watched
from gpudoctor.model import Diagnosis, Figure, Report, Result, Skip, Snapshot, Status

ACCEPTED, REMARKS, REFUSED, INCOMPLETE = "accepted", "accepted with remarks", "not accepted", "incomplete"
LOADED = "burn"  # the check whose pass means that the load ran to its end, and that every result was right


def added(report: Report, taken: Snapshot) -> Report:
    """The report of an acceptance with the record among its facts; others as they are."""
    if taken.level != ACCEPTANCE:
        return report
    facts = Facts(taken)
    every = [figure for each in report.measured.figures.values() for figure in each]
    made = record(facts, report.checks, report.diagnosis, every)
    return replace(report, facts={**report.facts, "acceptance": made})


def record(facts: Facts, results: Iterable[Result], diagnosis: Sequence[Diagnosis], figures: Sequence[Figure]) -> dict[str, Any]:
    """sha256: of all else in it, so that a changed copy is seen."""
    rows = {result.id: result for result in results}
    none: dict[str, Gpu] = {}
    gpus = known(lambda: facts.nvml.reachable, none).values()
    made = {
        "verdict": _verdict(rows, diagnosis),
        "taken": facts.taken,
        "machine": " ".join(filter(None, (_read(lambda: facts.inventory.vendor), _read(lambda: facts.inventory.product)))),
        "serial": _serials(facts).get("machine", ""),
        "gpus": [_gpu(facts, gpu) for gpu in gpus],
        "minutes": _minutes(facts),
        "expectation": _expectation(facts, rows),
        "problems": [entry.problem for entry in diagnosis],
        "not_checked": sorted(row.id for row in rows.values() if row.status in (Status.BLOCKED, Status.ERROR)),
        "not_watched": _not_watched(facts),
        "figures": [_figure(facts, figure, figures) for figure in figures],
    }
    return {**made, "sha256": hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()}


def _verdict(rows: dict[str, Result], diagnosis: Sequence[Diagnosis]) -> str:
    if any(entry.status is Status.FAIL for entry in diagnosis):
        return REFUSED
    loaded = rows.get(LOADED)
    if not loaded or loaded.status is not Status.PASS or any(row.status is Status.ERROR for row in rows.values()):
        return INCOMPLETE
    return REMARKS if diagnosis else ACCEPTED


def _serials(facts: Facts) -> dict[str, str]:
    """Only if the user asked for them."""
    try:
        found = facts.replies.value("serials")
    except Skip:
        return {}
    return {str(name): str(serial) for name, serial in found.items() if serial}


def _read(read: Any) -> str:
    return str(known(read, ""))


def _not_watched(facts: Facts) -> list[str]:
    """What could not be read while the GPUs were under load."""
    try:
        return watched.not_watched(watched.under_load(facts))
    except Skip:
        return ["error counters, links and Xids (none were read)"]


def _gpu(facts: Facts, gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "name": _read(lambda: gpu.name),
        "uuid": _read(lambda: gpu.uuid),
        "bus_id": _read(lambda: gpu.bus_id),
        "vbios": _read(lambda: gpu.vbios),
        "serial": _serials(facts).get(f"gpu{gpu.index}", ""),
    }


def _minutes(facts: Facts) -> float:
    """How long every GPU was under load."""
    try:
        return round(min(each.seconds for each in burning.burned(facts)) / 60, 1)
    except (Skip, ValueError):
        return 0.0


def _expectation(facts: Facts, rows: dict[str, Result]) -> dict[str, str]:
    row = rows.get("expectation")
    try:
        name = expected.expected(facts).name
    except Skip as skip:
        return {"name": "", "result": skip.reason}
    return {"name": name, "result": row.message if row else ""}


def _figure(facts: Facts, figure: Figure, every: Sequence[Figure]) -> dict[str, Any]:
    """Shares of 1: of the datasheet or the link, of the median of the same GPUs here, and of the saved baseline; None where there
    is no such value."""
    alike = [other.value for other in every if (other.what, other.unit) == (figure.what, figure.unit)]
    before = shortfalls.baseline(facts, figure) if facts.baseline else None
    share = figure.share
    return {
        "what": figure.what,
        "gpu": figure.gpu,
        "value": float(f"{figure.value:.5g}"),
        "unit": figure.unit,
        "of_expected": None if share is None else round(share, 3),
        "of_siblings": round(figure.value / statistics.median(alike), 3) if len(alike) > 1 and statistics.median(alike) else None,
        "of_baseline": round(figure.value / before, 3) if before else None,
        "is_verified": not figure.wrong,
    }
