"""The acceptance of a machine, for people: what was accepted, each figure by each rule, and lines to sign."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.judging.measured.shortfalls import digits
from gpudoctor.model import Report
from gpudoctor.plain import plain
from gpudoctor.report.section import Section

FIGURES = ("Figure", "GPU", "Value", "Unit", "Datasheet", "Siblings", "Baseline")
GPUS = ("GPU", "Model", "Bus", "VBIOS", "Serial number or UUID")


def of(report: Report) -> Mapping[str, Any] | None:
    """None if the report is not one of an acceptance."""
    found = report.facts.get("acceptance")
    return found if isinstance(found, Mapping) else None


def sections(report: Report) -> Iterator[Section]:
    found = of(report)
    if not found:
        return
    yield Section(f"Acceptance: {found['verdict']}", (), (), tuple(_about(found)))
    yield Section("GPUs of this machine", GPUS, tuple(map(_gpu, found["gpus"])))
    if found["figures"]:
        about = ("Datasheet, siblings and baseline: the share of what is expected there. -: nothing to compare with.",)
        yield Section("Every figure", FIGURES, tuple(map(_figure, found["figures"])), about)
    yield Section(
        "Signed off",
        (),
        (),
        (
            "Name: ______________________   Date: ______________   Signature: ______________________",
            f"SHA-256: {found['sha256']}",
        ),
    )


def _about(found: Mapping[str, Any]) -> Iterator[str]:
    machine = plain(found["machine"] or "unknown") + (f", serial number {plain(found['serial'])}" if found["serial"] else "")
    yield f"Machine: {machine}; {found['taken']}; all GPUs under load for {found['minutes']:g} min."
    expectation = found["expectation"]
    yield f"Expectation: {plain(expectation['name'] or 'none')}: {plain(expectation['result'])}."
    if found["problems"]:
        yield f"Problems: {', '.join(dict.fromkeys(found['problems']))}."
    if found["not_checked"]:
        yield f"Not checked: {', '.join(found['not_checked'])}."
    if found.get("not_watched"):
        yield f"Not watched under load: {plain(', '.join(found['not_watched']))}."


def _gpu(gpu: Mapping[str, Any]) -> tuple[str, ...]:
    return str(gpu["index"]), plain(gpu["name"]), plain(gpu["bus_id"]), plain(gpu["vbios"]), plain(gpu["serial"] or gpu["uuid"])


def _figure(row: Mapping[str, Any]) -> tuple[str, ...]:
    shares = ("-" if row[name] is None else f"{row[name]:.0%}" for name in ("of_expected", "of_siblings", "of_baseline"))
    value = digits(row["value"]) + ("" if row["is_verified"] else " (wrong)")
    return plain(row["what"]), "all" if row["gpu"] is None else str(row["gpu"]), value, row["unit"], *shares
