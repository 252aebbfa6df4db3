"""Reduces what a node answered to what the aggregate needs: a thousand whole snapshots do not fit into memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpudoctor.fleet.figures import Figures
from gpudoctor.fleet.judging import Judge
from gpudoctor.fleet.model import Problem, State
from gpudoctor.fleet.reading import Answers, Read, Unanswered
from gpudoctor.fleet.traits import Alike, versions
from gpudoctor.model import Diagnosis, Report, Status

_PRODUCT = "file:/sys/class/dmi/id/product_name"
_NO_PRODUCT = ("", "none", "not specified", "system product name", "to be filled by o.e.m.", "default string")


@dataclass(frozen=True)
class Seen:
    """A node before it is compared. product: of its maker. alike: question -> number of the compared parts.

    gpus: how many the driver lists; dead: those of them that do not answer. on_bus: how many the bus has.
    """

    name: str
    state: State
    detail: str = ""
    status: Status | None = None
    taken: str = ""
    product: str = ""
    gpu_names: tuple[str, ...] = ()
    gpus: int = 0
    dead: tuple[int, ...] = ()
    on_bus: int = 0
    expected_gpus: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    alike: dict[str, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    figures: Figures = field(default_factory=Figures)
    ran: int = 0
    applicable: int = 0


class Collector:
    """Judges and reduces nodes one after the other."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.alike = Alike()

    def seen(self, name: str, read: Read, state: State = State.ANSWERED, detail: str = "") -> Seen:
        if isinstance(read, Unanswered):
            return Seen(name, read.state, read.detail)
        if isinstance(read, Report):
            return _of_report(name, read, state, detail)
        whole = _of_report(name, self._judge.report(read), state, detail)
        expected = read.snapshot.expected.get("gpus")
        return replace(whole, product=_product(read), expected_gpus=expected, alike=self.alike.of(read))


def _of_report(name: str, report: Report, state: State, detail: str) -> Seen:
    gpus = report.facts.get("gpus") or ()
    if state is State.ANSWERED and report.target.get("reduced"):
        state, detail = State.NO_PYTHON, detail or str(report.target["reduced"])
    if state is State.ANSWERED and not gpus and not report.facts.get("pci_gpus") and _has_looked(report):
        state = State.NO_GPU
    if state is State.ANSWERED and not _has_looked(report) and report.coverage.applicable and not report.coverage.ran:
        state, detail = State.INVALID, "no check could use its answers"
    areas = {row.id: row.area for row in report.checks}
    return Seen(
        name,
        state,
        detail,
        status=report.verdict,
        taken=str(report.target.get("taken", "")),
        gpu_names=tuple(str(gpu["name"]) for gpu in gpus if gpu.get("name")),
        gpus=len(gpus),
        dead=tuple(int(gpu.get("index", place)) for place, gpu in enumerate(gpus) if not gpu.get("name")),
        on_bus=len(report.facts.get("pci_gpus") or ()),
        versions=versions(report),
        problems=tuple(_problem(entry, areas.get(entry.check, "")) for entry in report.diagnosis),
        figures=Figures.of(figure for figures in report.measured.figures.values() for figure in figures),
        ran=report.coverage.ran,
        applicable=report.coverage.applicable,
    )


def _has_looked(report: Report) -> bool:
    return "pci_gpus" in report.facts or "gpus" in report.facts


def _problem(entry: Diagnosis, area: str) -> Problem:
    return Problem(entry.problem, entry.title, entry.message, entry.status, entry.action, entry.check, area, entry.gpu)


def _product(answers: Answers) -> str:
    reply = answers.snapshot.replies.get(_PRODUCT)
    said = str(reply.value).strip() if reply and reply.status == "ok" and reply.value else ""
    return "" if said.lower() in _NO_PRODUCT else said[:80]
