"""The fixes of a report as steps in a safe order: reads, settings, packages, restarts; steps for a person come last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpudoctor.model import Diagnosis, Fix, Kind, Problem
from gpudoctor.report import findings

ORDER: tuple[Kind, ...] = ("read", "set", "install", "restart", "manual", "reset")


@dataclass(frozen=True)
class Step:
    """One fix as a step. kind: that of the fix, or "manual" if a person has to do it. command: without its reboot.

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
        """The risk of the command alone: the reboot is a separate step."""
        interrupts = self.fix.risk == "destructive" or "drain" in self.fix.needs or self.kind == "restart"
        return self.fix.risk if not self.reboots or interrupts else "safe"

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(need for need in self.fix.needs if need != "reboot" or self.reboots)

    @property
    def may_run(self) -> bool:
        """Whether a script may run it: no decision, other machine, user's shell, reset or mere reboot."""
        return bool(self.command) and self.kind not in ("manual", "reset")

    @property
    def disturbs(self) -> bool:
        """Whether it interrupts work on a GPU."""
        return self.risk != "safe" or "drain" in self.fix.needs

    @property
    def replaces_driver(self) -> bool:
        """Whether new programs find mismatched driver libraries until the reboot."""
        return self.reboots and self.kind == "install"


def of_report(diagnosis: Iterable[Diagnosis]) -> list[Step]:
    """The steps for all problems of a report, each command once."""
    groups = findings.groups(diagnosis)
    return ordered(step for group in groups for step in _steps(group[0].problem, group[0].title, findings.fixes(group)))


def of_problem(problem: Problem, fixes: Iterable[Fix]) -> list[Step]:
    """The steps for a problem that was not found, from its general fixes."""
    return ordered(_steps(problem.id, problem.title, list(fixes)))


def _steps(problem: str, title: str, fixes: list[Fix]) -> Iterator[Step]:
    """Steps that only read, then the first that changes something, with the others as its alternatives."""
    steps = [_step(problem, title, fix) for fix in fixes]
    yield from (step for step in steps if step.kind == "read")
    changing = [step for step in steps if step.kind != "read"]
    first = next((step for step in changing if step.may_run), changing[0] if changing else None)
    if first:
        yield replace(first, alternatives=tuple(step for step in changing if step is not first))


def _step(problem: str, title: str, fix: Fix) -> Step:
    return Step(problem, title, fix, _kind(fix), fix.before_reboot, "reboot" in fix.needs)


def _kind(fix: Fix) -> Kind:
    is_lost = fix.risk == "destructive" and fix.kind != "read"
    is_for_a_person = not fix.before_reboot or fix.where != "here" or fix.syntax != "bash" or fix.names or is_lost
    return "manual" if is_for_a_person and fix.kind != "reset" else fix.kind


def ordered(steps: Iterable[Step]) -> list[Step]:
    """Steps by kind, then in the order of the report. A step that another one includes is left out."""
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
    """If the machine reboots anyway, services are not restarted before."""
    if not any(step.reboots and step.command for step in steps):
        return steps
    return [_booted(step) if step.kind == "restart" else step for step in steps]


def _booted(step: Step) -> Step:
    only = next((other for other in step.alternatives if other.reboots and not other.command), None)
    return replace(only, alternatives=tuple(other for other in step.alternatives if other != only)) if only else step


def is_checked_later(step: Step, steps: Iterable[Step]) -> bool:
    """Whether its verification can only succeed after a later step: a reboot, a restart or a step for a person."""
    return step.reboots or any(
        other.reboots or (other.command and other.kind in ("restart", "manual", "reset")) for other in steps if other != step
    )
