"""What the settings add to the options of a command."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from gpudoctor import screen, settings
from gpudoctor.errors import UserError
from gpudoctor.wanted import Wanted


def applied(wanted: Wanted) -> Wanted:
    """An option on the command line overrides a setting. UserError for an ignored problem that does not exist."""
    known = settings.current()
    return replace(
        wanted,
        level=wanted.level or known.level,
        python=wanted.python or (None if wanted.inside else known.python),
        ignored=ignored(),
    )


def ignored() -> dict[str, dict[str, str]]:
    """Warns of what is no longer ignored."""
    known = settings.current()
    for problem, rule in known.ignore.items():
        _must_exist(problem)
        if rule["until"] < date.today().isoformat():
            where = known.sources[f"ignore.{problem}"]
            screen.note(f"Warning: {problem} counts again: it was ignored until {rule['until']} ({where})")
    return {problem: dict(rule) for problem, rule in known.ignore.items()}


def _must_exist(problem: str) -> None:
    from gpudoctor import catalog
    from gpudoctor.spelling import unknown

    if problem not in catalog.problems():
        where = settings.current().sources[f"ignore.{problem}"]
        raise UserError(f"{where}: ignore: {unknown('problem', problem, catalog.problems())}")
