"""What differs from a machine where the command works, in the order of `gpudoctor diff`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpudoctor import checkup, comparing
from gpudoctor.checkup import Checkup
from gpudoctor.comparing import ABSENT, Change
from gpudoctor.errors import UserError
from gpudoctor.files import opening
from gpudoctor.judging.experiments.suspect import AFFINITY, HIDDEN, LIMIT, PATHS, SETTING, USER_SITE, Suspect
from gpudoctor.knowledge.suspects import variable
from gpudoctor.model import Snapshot
from gpudoctor.plain import plain

MOST_VALUE = 60  # characters of a value
LIKELIEST = 1000


@dataclass(frozen=True)
class Differences:
    """suspects: what can be taken away here, in the order of `diff`. others: one line for each other difference."""

    suspects: tuple[Suspect, ...]
    others: tuple[str, ...]


def opened(path: str) -> Checkup:
    """UserError if it is not a snapshot, whose answers can be compared."""
    good = checkup.load(path, "quick")
    if good.snapshot is None:
        raise UserError(f"--like {path}: this is a report; a snapshot is needed (gpudoctor check --save FILE)")
    return good


def differences(answers: Snapshot, good: Checkup, found: Sequence[Suspect]) -> Differences:
    """found: everything that can be taken away here."""
    here = Checkup(snapshot=answers)
    if opening.is_redacted(good.snapshot):
        here, good = checkup.alike(here, good)
    changes = [change for change in comparing.compare(good.opened("good"), here.opened("here")).changes if not change.is_noise]
    ranked: dict[Suspect, None] = {}
    others = []
    for change in changes:
        own = _as_there(change, opening.is_redacted(good.snapshot)) or [
            suspect for suspect in found if _is_about(suspect, change)
        ]
        ranked |= dict.fromkeys(own)
        if not own:
            others.append(_told(change))
    weighed = (replace(suspect, weight=weight) for suspect, weight in zip(ranked, _weights(len(ranked)), strict=True))
    return Differences(tuple(weighed), tuple(others))


def _as_there(change: Change, is_redacted: bool) -> list[Suspect]:
    """The variable as it is there; none if it is not set there, if it is a list of paths, or if its value can be redacted."""
    value = change.one
    is_variable = change.question == "environment" and change.part not in PATHS and variable(change.part)
    if (
        not is_variable
        or not isinstance(value, str)
        or value in ("", ABSENT, HIDDEN)
        or (is_redacted and re.search("[/-]", value))
    ):
        return []
    return [Suspect(SETTING, change.part, value, "it is set so where the command works")]


def _weights(number: int) -> Iterator[int]:
    """Falling, so that the search begins with the first."""
    return (max(1, LIKELIEST >> place) for place in range(number))


def _is_about(suspect: Suspect, change: Change) -> bool:
    if suspect.kind == LIMIT:
        return change.question in ("limits", "file:/proc/self/limits") and suspect.name.replace("_", " ") in _words(change.part)
    if suspect.kind == AFFINITY:
        return change.question == "cpus"
    if suspect.kind == USER_SITE:
        return change.question == "interpreter" and change.part.startswith("user_site")
    return change.question == "environment" and change.part == suspect.name


def _words(part: str) -> str:
    return part.replace("_", " ").lower()


def _told(change: Change) -> str:
    name = " ".join(filter(None, (change.question, change.part)))
    return f"{name}: there {_short(change.one)}, here {_short(change.other)}"


def _short(value: object) -> str:
    if isinstance(value, dict) and "version" in value:
        value = value["version"]
    text = plain(" ".join(str(value).split()))
    return text if len(text) <= MOST_VALUE else text[:MOST_VALUE] + "…"
