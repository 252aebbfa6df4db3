"""A check from the first question to the verdict: a machine is asked, then measured, and what came of it is judged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.collect_container import Request
    from gpudoctor.doctor import Checks
    from gpudoctor.interpreter import Target
    from gpudoctor.model import Report, Snapshot

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What is examined, and how. python: "" is the one that runs this. container: to look into. gpus: to measure; () is all."""

    level: str = "standard"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    python: str = ""
    container: Request | None = None
    expected: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()
    force: bool = False
    timeout: float = 20
    measure_timeout: float | None = None
    baseline: Path | None = None

    def checks(self, level: str = "") -> Checks:
        """UserError for a name that is none."""
        from gpudoctor import catalog, doctor

        return doctor.select(catalog.checks(), level or self.level, self.only, self.skip)


def taken(wanted: Wanted, tell: Tell, warn: Tell) -> tuple[Snapshot, int]:
    """Asked and measured, and the signal (0: none) that cut the measuring off. tell: what is being done, "" for nothing."""
    baseline = _baseline(wanted.baseline, warn)
    with _asked(wanted, tell) as (answers, where):
        from gpudoctor import doctor  # what judges is loaded while the machine answers

        checks = wanted.checks()
        answers = replace(answers, baseline=baseline, level=doctor.deepest_level(checks))
        return _measured(answers, checks, wanted, where, tell) if where else (answers, 0)


def judged(answers: Snapshot, wanted: Wanted) -> Report:
    from gpudoctor import doctor

    return doctor.judge(answers, wanted.checks(doctor.level_of(answers)))


@contextlib.contextmanager
def _asked(wanted: Wanted, tell: Tell) -> Iterator[tuple[Snapshot, Target | None]]:
    """What the target answered, and the target as long as it can be measured; None where it cannot."""
    if not wanted.container:
        yield of_interpreter(wanted, tell)
        return
    from gpudoctor import collect_container

    with collect_container.examined(wanted.container, wanted.timeout, wanted.expected, _asking(tell)) as found:
        yield found


def of_interpreter(wanted: Wanted, tell: Tell) -> tuple[Snapshot, Target]:
    """What a Python of this machine answered, and that Python."""
    from gpudoctor import interpreter
    from gpudoctor.collect import collect

    where = interpreter.Interpreter(wanted.python) if wanted.python else interpreter.this_interpreter()
    return collect(where, wanted.timeout, wanted.expected, _asking(tell)), where


def _asking(tell: Tell) -> Callable[[tuple[str, ...]], None]:
    return lambda names: tell(f"Asking {', '.join(names)}" if names else "")


def _measured(answers: Snapshot, checks: Checks, wanted: Wanted, where: Target, tell: Tell) -> tuple[Snapshot, int]:
    from gpudoctor import measure, planning

    planned = planning.plan(answers, checks, wanted.gpus, wanted.force)
    if not planned.workloads:
        return answers, 0

    def measuring(running: tuple[str, ...], left: float) -> None:
        tell(f"Measuring, about {left:.0f} s left: {', '.join(running)}")

    seconds = wanted.measure_timeout or measure.SECONDS.get(wanted.level, measure.SECONDS["standard"])
    measured, cut_off_by = measure.measure(where, planned, wanted.level, seconds, measuring)
    return replace(answers, measured=measured), cut_off_by


def _baseline(path: Path | None, warn: Tell) -> dict[str, dict[str, float]]:
    """One that was not asked for, and cannot be read, must not cost the report."""
    from gpudoctor.files import baseline

    try:
        return baseline.load(path)
    except UserError as error:
        if path:
            raise
        warn(f"{error}. It is not used; save another with gpudoctor baseline save.")
        return {}
