"""The fixes of a report as steps in a safe order: reads, settings, packages, restarts; what a person must do comes last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpudoctor.fixes import unstated
from gpudoctor.model import Diagnosis, Fix, Kind, Problem
from gpudoctor.report import findings

ORDER: tuple[Kind, ...] = ("read", "set", "install", "restart", "manual", "reset")


@dataclass(frozen=True)
class Step:
    """One way out of a problem. kind: that of the fix; "manual" for what only a person may do here. command: without its reboot.

    reboots: it counts from the next boot on.
    """

    problem: str
    title: str  # of the problem
    fix: Fix
    kind: Kind
    command: str
    reboots: bool = False
    alternatives: tuple[Step, ...] = ()
    also: tuple[Step, ...] = ()  # of other problems, which this one ends too

    @property
    def risk(self) -> str:
        """Of the command alone: the reboot is a step of its own."""
        interrupts = self.fix.risk == "destructive" or "drain" in self.fix.needs or self.kind == "restart"
        return self.fix.risk if not self.reboots or interrupts else "safe"

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(need for need in self.fix.needs if need != "reboot" or self.reboots)

    @property
    def may_run(self) -> bool:
        """Not what needs a decision, another place, this very shell, a reset or only a reboot."""
        return bool(self.command) and self.kind not in ("manual", "reset")

    @property
    def disturbs(self) -> bool:
        """Work on a GPU would suffer."""
        return self.risk != "safe" or "drain" in self.fix.needs

    @property
    def replaces_driver(self) -> bool:
        """From then on until the reboot, what starts on a GPU finds libraries that the loaded module does not fit."""
        return self.reboots and self.kind == "install"


def of_report(diagnosis: Iterable[Diagnosis]) -> list[Step]:
    """All problems of a report, each command once."""
    groups = findings.groups(diagnosis)
    return ordered(step for group in groups for step in _steps(group[0].problem, group[0].title, findings.fixes(group)))


def of_problem(problem: Problem, fixes: Iterable[Fix]) -> list[Step]:
    """A problem that was not found: its fixes as far as this machine is known."""
    return ordered(_steps(problem.id, problem.title, list(fixes)))


def _steps(problem: str, title: str, fixes: list[Fix]) -> Iterator[Step]:
    """All that only reads, then the first that changes something, with the others as its alternatives."""
    steps = [_step(problem, title, fix) for fix in fixes]
    yield from (step for step in steps if step.kind == "read")
    changing = [step for step in steps if step.kind != "read"]
    first = next((step for step in changing if step.may_run), changing[0] if changing else None)
    if first:
        yield replace(first, alternatives=tuple(step for step in changing if step is not first))


def _step(problem: str, title: str, fix: Fix) -> Step:
    return Step(problem, title, fix, _kind(fix), fix.before_reboot, "reboot" in fix.needs)


def _kind(fix: Fix) -> Kind:
    kind = fix.kind or unstated.kind(fix)
    is_lost = fix.risk == "destructive" and kind != "read"
    is_for_a_person = not fix.before_reboot or fix.where != "here" or fix.names or is_lost
    return "manual" if is_for_a_person and kind != "reset" else kind


def ordered(steps: Iterable[Step]) -> list[Step]:
    """By kind, else as the report has them: the most severe first. What another step does as well is no step of its own."""
    once: list[Step] = []
    for step in _by_one_reboot(list(steps)):
        place = next((number for number, other in enumerate(once) if _does(other, step) or _does(step, other)), None)
        if place is None:
            once.append(step)
        else:
            once[place] = _joined(once[place], step)
    return sorted(once, key=lambda step: ORDER.index(step.kind))


def _does(step: Step, other: Step) -> bool:
    """Whether a step's commands end with all those of another."""
    if not (step.command and other.command):
        return (step.problem, step.fix.title, step.command) == (other.problem, other.fix.title, other.command)
    return f" && {step.command}".endswith(f" && {other.command}")


def _joined(one: Step, other: Step) -> Step:
    longer, shorter = (one, other) if _does(one, other) else (other, one)
    return replace(longer, also=(*longer.also, shorter, *shorter.also) if shorter.problem != longer.problem else longer.also)


def _by_one_reboot(steps: list[Step]) -> list[Step]:
    """Where the machine boots anyway, what a reboot does is not done before by force."""
    if not any(step.reboots and step.command for step in steps):
        return steps
    return [_booted(step) if step.kind == "restart" else step for step in steps]


def _booted(step: Step) -> Step:
    only = next((other for other in step.alternatives if other.reboots and not other.command), None)
    return replace(only, alternatives=tuple(other for other in step.alternatives if other != only)) if only else step


def is_checked_later(step: Step, steps: Iterable[Step]) -> bool:
    """Whether its check can only succeed once another step counts: one that boots, restarts or is left to a person."""
    return step.reboots or any(
        other.reboots or (other.command and other.kind in ("restart", "manual", "reset")) for other in steps if other != step
    )
