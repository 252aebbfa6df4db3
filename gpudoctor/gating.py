"""Decides whether a node may get jobs: only a fault that is certain, seen twice, and marked in the catalog keeps them away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from gpudoctor.errors import UserError, WorkError
from gpudoctor.model import Action, Confidence, Diagnosis, Report, Snapshot, Status
from gpudoctor.plain import plain
from gpudoctor.spelling import unknown

if TYPE_CHECKING:
    from gpudoctor.doctor import Checks

PROBES = ("nvml", "libraries", "modules", "services", "system", "pci", "devices", "environment", "container", "wsl")
"""What the gate asks. Not the kernel's log: it keeps the errors of a GPU that was reset since."""
CUDA_PROBES = ("limits", "cuda")
COUNT = "gpu-count"
LONGEST_LINE = 200
PAUSE_SECONDS = 0.5  # between the two looks at a node that seems unfit

Verdict = Literal["fit", "unfit", "unsure"]


@dataclass(frozen=True)
class Gate:
    """reason: one line; "" if the node is fit. problems: the ids of what makes it unfit."""

    verdict: Verdict
    reason: str = ""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    """What keeps jobs away. expect_gpus: with it, whatever keeps the GPUs from being counted does, too. also, allowed: ids of
    problems that do, or do not, whatever the catalog says."""

    expect_gpus: int | None = None
    also: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    cuda: bool = False
    ignored: dict[str, dict[str, str]] = field(default_factory=dict)

    def must_exist(self) -> None:
        """UserError for an unknown problem."""
        from gpudoctor import catalog

        problems = catalog.problems()
        for id in (*self.also, *self.allowed):
            if id not in problems:
                raise UserError(unknown("problem", id, problems))

    @property
    def unfit(self) -> frozenset[str]:
        return frozenset((_marked(True) | {*self.also}) - {*self.allowed})

    @property
    def never(self) -> frozenset[str]:
        """Problems that do not keep jobs away even if GPUs are expected."""
        return frozenset((_marked(False) | {*self.allowed}) - {*self.also})

    @property
    def probes(self) -> tuple[str, ...]:
        return (*PROBES, *CUDA_PROBES) if self.cuda else PROBES

    def checks(self) -> Checks:
        """The checks that can find what makes a node unfit, with those that they need."""
        from gpudoctor import catalog, doctor

        every, unfit = catalog.checks(), self.unfit
        finders = [id for id, check in every.items() if unfit & {problem.id for problem in catalog.found_by(check)}]
        quick = doctor.select(every, "quick")
        return doctor.select(every, "quick", only=[id for id in (COUNT, *finders) if id in quick])


def _marked(unfit: bool) -> set[str]:
    from gpudoctor import catalog

    return {id for id, problem in catalog.problems_by_id().items() if problem.unfit is unfit}


def judged(taken: Snapshot, rules: Rules) -> Gate:
    """The verdict on one look. Pure. What a gate does not ask is left out of a snapshot that contains more."""
    from gpudoctor import doctor

    replies = {question: reply for question, reply in taken.replies.items() if "kernel-log" not in question}
    expected = taken.expected if rules.expect_gpus is None else {"gpus": rules.expect_gpus}
    asked = replace(
        taken,
        replies=replies,
        expected=expected,
        measured={},
        experiments={},
        host={},
        ignored={**taken.ignored, **rules.ignored},
    )
    return _verdict(doctor.judge(asked, rules.checks()), rules, "gpus" in expected)


def _verdict(report: Report, rules: Rules, is_counted: bool) -> Gate:
    """is_counted: whether a number of GPUs is expected."""
    unfit, never = rules.unfit, rules.never
    failures = [entry for entry in report.diagnosis if entry.status is Status.FAIL]

    def is_grave(entry: Diagnosis) -> bool:
        hides_gpus = is_counted and COUNT in (entry.check, *entry.explains)
        return entry.problem in unfit or (hides_gpus and entry.problem not in never)

    grave = [entry for entry in failures if is_grave(entry)]
    sure = [entry for entry in grave if entry.confidence is Confidence.CONFIRMED]
    if sure:
        problems = tuple(dict.fromkeys(entry.problem for entry in sure))
        return Gate("unfit", _line(sure[0], problems), problems)
    doubt = next(iter([*grave, *_in_the_way(report, failures)]), "")
    if isinstance(doubt, Diagnosis):
        doubt = f"{doubt.problem}: {doubt.message}"
    return Gate("unsure", shortened(f"unsure: {doubt}")) if doubt else Gate("fit")


def _in_the_way(report: Report, failures: Iterable[Diagnosis]) -> Iterator[Diagnosis | str]:
    """Why the GPUs could not be counted. On a machine without a GPU nothing is to be counted."""
    count = next((row for row in report.checks if row.id == COUNT), None)
    if count is None or count.status in (Status.PASS, Status.WARN, Status.FAIL):
        return
    because = [entry for entry in failures if COUNT in (entry.check, *entry.explains)]
    if because and all(entry.action is Action.NONE for entry in because):
        return
    yield from because
    if not because:
        yield count.message


def _line(entry: Diagnosis, problems: tuple[str, ...]) -> str:
    others = [id for id in problems if id != entry.problem]
    more = f"; also {', '.join(others)}" if others else ""
    return shortened(f"{entry.problem}: {entry.message}", LONGEST_LINE - len(more)) + more


def shortened(text: str, length: int = LONGEST_LINE) -> str:
    words = " ".join(plain(text).split())
    length = max(length, LONGEST_LINE // 2)
    return words if len(words) <= length else words[: length - 1].rstrip() + "…"


Look = Callable[[float], Snapshot]


def gate(look: Look, rules: Rules, seconds: float, pause: float = PAUSE_SECONDS) -> Gate:
    """Looks at this node within `seconds`. A node is unfit only if a second look finds the same; a failure of gpudoctor itself
    says nothing about the node."""
    deadline = time.monotonic() + seconds
    first = _looked(look, rules, seconds / 2)
    if first.verdict != "unfit":
        return first
    time.sleep(min(pause, seconds / 10))
    second = _looked(look, rules, max(deadline - time.monotonic(), seconds / 4))
    both = tuple(id for id in second.problems if id in first.problems)
    if second.verdict == "unfit" and both:
        return second
    return Gate("unsure", shortened(f"unsure: seen once, but not again: {first.reason}"))


def _looked(look: Look, rules: Rules, seconds: float) -> Gate:
    try:
        return judged(look(seconds), rules)
    except (UserError, WorkError) as failure:
        return Gate("unsure", shortened(f"unsure: {failure}"))
    except Exception as bug:
        return Gate("unsure", shortened(f"unsure: internal error in gpudoctor: {type(bug).__name__}: {bug}"))


def here(rules: Rules) -> Look:
    """Looks with the Python that runs gpudoctor: the node is judged, no environment."""
    from gpudoctor.collect import collect
    from gpudoctor.interpreter import this_interpreter

    def look(seconds: float) -> Snapshot:
        expected = {} if rules.expect_gpus is None else {"gpus": rules.expect_gpus}
        taken = collect(this_interpreter(), seconds, expected, lambda names: None, None, rules.probes)
        return replace(taken, level="quick")

    return look
