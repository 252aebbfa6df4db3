"""A check from the first question to the verdict: a machine is asked and measured, or a snapshot is loaded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor.checkup import Checkup
from gpudoctor.choices import BURN
from gpudoctor.errors import UserError
from gpudoctor.model import Reply

if TYPE_CHECKING:
    from gpudoctor import measure
    from gpudoctor.doctor import Checks
    from gpudoctor.evidence import Evidence
    from gpudoctor.interpreter import Target
    from gpudoctor.model import Snapshot
    from gpudoctor.wanted import Wanted

Tell = Callable[[str], None]
AsJudged = Callable[["Snapshot"], "Snapshot"]


def examined(
    wanted: Wanted, told: Evidence | None, tell: Tell, warn: Tell, show: measure.Progress | None = None
) -> tuple[Checkup, int]:
    """Examines a machine; also returns the signal (0: none) that stopped the measurements.

    told: evidence from logs. tell: called with the current activity; "" for none. show: called with what runs, the seconds left
    and the last readings of each GPU, instead of `tell`.
    """
    baseline, counters = _baseline(wanted.baseline, warn)
    expectation = wanted.expectation()

    def as_judged(answers: Snapshot) -> Snapshot:
        from gpudoctor import doctor  # the judging code is loaded while the machine answers

        return replace(
            answers,
            baseline=baseline,
            counters=counters,
            expectation=expectation,
            level=wanted.depth or doctor.deepest_level(wanted.checks()),
            ignored=wanted.ignored,
        )

    with _asked(wanted, tell, None if wanted.whole or told else as_judged) as (answers, where):
        checks = wanted.checks()
        answers = as_judged(answers)
        if where and (names := _deep(wanted, answers.level, checks)):
            from gpudoctor.collect import deeper

            answers = deeper(where, answers, _asking(tell), names)
        answers, cut_off_by = _in_phases(answers, wanted, where, tell, show) if where else (answers, 0)
    return _checkup(answers, told, wanted), cut_off_by


def replayed(file: Path, wanted: Wanted, told: Evidence | None) -> Checkup:
    """Judges a saved snapshot with today's expectations; no machine is asked."""
    from gpudoctor.files import baseline, opening

    expectation = wanted.expectation()
    answers = opening.at(opening.taken_in(str(file)), wanted.level)
    saved = baseline.load(wanted.baseline) if wanted.baseline else answers.baseline
    counters = baseline.counters(wanted.baseline) if wanted.baseline else answers.counters
    expectation = expectation or answers.expectation
    expected = {**answers.expected, **wanted.expected}
    given = replace(answers, expected=expected, expectation=expectation, baseline=saved, counters=counters)
    return _checkup(given, told, wanted)


def of_interpreter(wanted: Wanted, tell: Tell, as_judged: AsJudged | None = None) -> tuple[Snapshot, Target]:
    """The answers of a Python on this machine, and that Python: the named one, or the first candidate that can be run.

    as_judged: asks only what the wanted checks read, if it is given."""
    if wanted.python:
        return _answers(wanted.python, wanted, tell, as_judged)
    from gpudoctor import pythons

    unusable: dict[str, str] = {}
    for candidate in pythons.candidates(os.environ):
        try:
            answers, where = _answers(candidate.path, wanted, tell, as_judged)
        except UserError as refusal:
            unusable.setdefault(candidate.found, str(refusal))
            continue
        chosen = {"found": candidate.found, "own": candidate.is_own, "unusable": unusable}
        return replace(answers, replies={**answers.replies, pythons.QUESTION: Reply("ok", chosen)}), where
    raise UserError(next(iter(unusable.values()), "no Python found: name one with --python"))


def _answers(python: str, wanted: Wanted, tell: Tell, as_judged: AsJudged | None) -> tuple[Snapshot, Target]:
    from gpudoctor import remembered
    from gpudoctor.collect import collect, collect_needed
    from gpudoctor.interpreter import Interpreter

    where = Interpreter(python)
    if as_judged:
        taken = collect_needed(where, wanted.timeout, wanted.expected, _asking(tell), wanted.checks, as_judged)
    else:
        taken = collect(where, wanted.timeout, wanted.expected, _asking(tell))
    remembered.remember(taken.taken, where.path)
    return taken, where


def evidence_of(logs: Iterable[str], refusal: str) -> Evidence | None:
    """The evidence in log files; None if no files are given. UserError with the message `refusal` if one of them is a
    snapshot."""
    if not (paths := tuple(logs)):
        return None
    from gpudoctor import explaining

    told = explaining.gather(paths)
    if told.snapshot:
        raise UserError(refusal)
    return told


def with_evidence(answers: Snapshot, told: Evidence | None) -> Snapshot:
    if told is None:
        return answers
    from gpudoctor import evidence

    return evidence.added(answers, told)


def _checkup(answers: Snapshot, told: Evidence | None, wanted: Wanted) -> Checkup:
    from gpudoctor import doctor

    answers = with_evidence(answers, told)
    return Checkup(snapshot=answers, checks=wanted.checks(doctor.level_of(answers)))


@contextlib.contextmanager
def _asked(wanted: Wanted, tell: Tell, as_judged: AsJudged | None) -> Iterator[tuple[Snapshot, Target | None]]:
    """The target's answers, and the target while it can be measured; None if it cannot."""
    if not wanted.inside:
        yield of_interpreter(wanted, tell, as_judged)
        return
    from gpudoctor import collect_container

    with collect_container.examined(wanted, wanted.inside, _asking(tell)) as found:
        yield found


def _asking(tell: Tell) -> Callable[[tuple[str, ...]], None]:
    return lambda names: tell(f"Collecting {', '.join(names)}" if names else "")


def _deep(wanted: Wanted, level: str, checks: Checks) -> list[str]:
    """What is asked only by name."""
    return ["package-hashes"] * (level == "full" and "package-files" in checks) + ["serials"] * wanted.serials


def _in_phases(
    answers: Snapshot, wanted: Wanted, where: Target, tell: Tell, show: measure.Progress | None
) -> tuple[Snapshot, int]:
    """The benchmarks, then the load, as far as an earlier run has not done them; usually one of both."""
    from gpudoctor import resuming

    if wanted.earlier:
        resuming.must_be_same(wanted.earlier, answers)
    before = wanted.earlier.measured if wanted.earlier else {}
    phases = [wanted]
    if wanted.burning:
        phases = [replace(wanted, burning=resuming.left(wanted.burning, before, _gpus(answers)) if before else wanted.burning)]
        if wanted.burning.is_acceptance and not resuming.has_benchmarks(before):
            phases.insert(0, replace(wanted, burning=None, level="standard", experiments=False))
    answers, cut_off_by = replace(answers, measured=dict(before)), 0
    for phase in phases:
        if cut_off_by or (phase.burning and not phase.burning.loads):
            break
        checks = {id: check for id, check in phase.checks().items() if not phase.burning or check.level == BURN}
        done, cut_off_by = _measured(replace(answers, measured={}), checks, phase, where, tell, show)
        answers = replace(done, measured=resuming.merged(answers.measured, done.measured))
    return answers, cut_off_by


def _gpus(answers: Snapshot) -> int:
    reply = answers.replies.get("cuda:devices")
    return len(reply.value) if reply and isinstance(reply.value, list) else 1


def _measured(
    answers: Snapshot, checks: Checks, wanted: Wanted, where: Target, tell: Tell, show: measure.Progress | None
) -> tuple[Snapshot, int]:
    from gpudoctor import measure, planning

    planned = planning.plan(answers, checks, wanted.gpus, wanted.force)
    if not planned.workloads:
        return answers, 0

    def measuring(running: tuple[str, ...], left: float, seen: measure.Seen) -> None:
        if show and seen:
            show(running, left, seen)
            return
        tell(_burning(left, seen) if seen else f"Measuring, about {left:.0f} s left: {', '.join(running)}")

    level = wanted.level or "standard"
    seconds = wanted.measure_timeout or measure.SECONDS.get(level, measure.SECONDS["standard"])
    options: dict[str, dict[str, Any]] = {}
    if wanted.burning:
        seconds = wanted.burning.seconds + wanted.burning.OVERHEAD_SECONDS
        options = wanted.burning.options(len(planned.gpus))
    measured, cut_off_by = measure.measure(where, planned, level, seconds, measuring, options)
    answers = replace(answers, measured=measured)
    if cut_off_by or not wanted.experiments:
        return answers, cut_off_by
    from gpudoctor import experiment

    proofs, cut_off_by = experiment.experiments(where, answers, planned, checks, wanted.experiment_timeout, tell)
    return replace(answers, experiments=proofs), cut_off_by


def _burning(left: float, seen: measure.Seen) -> str:
    """`Burning, 8.0 min left: GPU 0 698 W 67 °C 1755 MHz`."""
    forms = {"watts": "{:.0f} W", "celsius": "{:.0f} °C", "sm_mhz": "{:.0f} MHz"}
    gpus = (
        " ".join([f"GPU {gpu}", *(form.format(sample[name]) for name, form in forms.items() if name in sample)])
        for gpu, sample in seen.items()
    )
    return f"Burning, {left / 60:.1f} min left: {', '.join(gpus)}"


def _baseline(path: Path | None, warn: Tell) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, Any]]]:
    """If the default baseline cannot be read, warn and go on without it; only a baseline named by the user is an error."""
    from gpudoctor.files import baseline

    try:
        return baseline.load(path), baseline.counters(path)
    except UserError as error:
        if path:
            raise
        warn(f"{error}. It is ignored; save a new one with gpudoctor baseline save.")
        return {}, {}
