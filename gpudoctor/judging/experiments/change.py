"""What is different in a child from which some suspects were taken away."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.judging.experiments.suspect import (
    AFFINITY,
    CURRENT_FOLDER,
    ENTRY,
    FOLDER,
    GPU,
    LIMIT,
    PATH_OF_GPUS,
    SETTING,
    USER_SITE,
    VARIABLE,
    Surroundings,
    Suspect,
)

_SEPARATORS = {"LD_PRELOAD": "[: ]", "LD_LIBRARY_PATH": "[:;]", "CUDA_VISIBLE_DEVICES": ","}


@dataclass(frozen=True)
class Change:
    """What is different: variables, limits that are raised, folders replaced by fresh ones, and the CPU cores.

    put: variable -> value. unset: variables. raised: keys of LIMITS. fresh: variable -> the folder that it named, instead of a
    fresh one. all_cores: all CPU cores may be used. worker/changed.py applies its `as_value()`.
    """

    put: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    fresh: dict[str, str] = field(default_factory=dict)
    all_cores: bool = False

    def as_value(self) -> dict[str, Any]:
        return {
            "put": self.put,
            "unset": list(self.unset),
            "raised": list(self.raised),
            "fresh": self.fresh,
            "all_cores": self.all_cores,
        }


def change(away: Iterable[Suspect], surroundings: Surroundings) -> Change:
    """The change that takes these suspects away."""
    away = tuple(away)
    put = {name: left for name in _lists(away) if (left := _left(name, away, surroundings))}
    emptied = [name for name in _lists(away) if name not in put]
    unset = [suspect.name for suspect in away if suspect.kind == VARIABLE]
    kinds = {suspect.kind for suspect in away}
    if USER_SITE in kinds:
        put["PYTHONNOUSERSITE"] = "1"
    if CURRENT_FOLDER in kinds:
        put["PYTHONSAFEPATH"] = "1"
    put |= {suspect.name: suspect.value for suspect in away if suspect.kind in (SETTING, PATH_OF_GPUS)}
    return Change(
        {name: value for name, value in put.items() if name not in unset},
        tuple(dict.fromkeys((*unset, *emptied))),
        tuple(suspect.name for suspect in away if suspect.kind == LIMIT),
        {suspect.name: suspect.value for suspect in away if suspect.kind == FOLDER},
        AFFINITY in kinds,
    )


def entries(name: str, text: str) -> tuple[str, ...]:
    """The entries of a variable with a list, without empty ones."""
    return tuple(entry for entry in re.split(_SEPARATORS.get(name, ":"), text) if entry)


def _lists(away: Collection[Suspect]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(suspect.name for suspect in away if suspect.kind in (ENTRY, GPU)))


def _left(name: str, away: Collection[Suspect], surroundings: Surroundings) -> str:
    gone = {suspect.value for suspect in away if suspect.kind in (ENTRY, GPU) and suspect.name == name}
    every = entries(name, surroundings.variables.get(name, "")) or surroundings.gpus * (name == "CUDA_VISIBLE_DEVICES")
    return ("," if name == "CUDA_VISIBLE_DEVICES" else ":").join(entry for entry in every if entry not in gone)
