"""How people describe problems for which no program prints a message: `symptoms.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudoctor import compiled

_BEFORE, _AFTER = r"(?<![A-Za-z0-9_])(?:", r")(?![A-Za-z0-9_])"
_GAP = r"(?![A-Za-z0-9_])[^.\n]{0,60}?(?<![A-Za-z0-9_])"
_PART = re.compile(r"\{([a-z][a-z-]*)\}")
_TOKEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]| ")  # an escape, a class of letters, or a blank

OF_SPEED = frozenset(("slow", "gpu-idle"))


class Symptom(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """problem: of the catalog. all: names of words, each alone or several with `|`. none: words that rule it out. others:
    problems with the same symptoms."""

    problem: str
    all: tuple[str, ...]
    none: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def is_of_speed(self) -> bool:
        """Whether it needs a complaint about speed: not what makes a program fail."""
        return any(OF_SPEED.issuperset(names.split("|")) for names in self.all)


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    parts: dict[str, str]
    shown: dict[str, str]
    said: dict[str, str]
    symptoms: tuple[Symptom, ...]


class Told(NamedTuple):
    """A symptom and the words of the text that it was found by."""

    symptom: Symptom
    words: tuple[str, ...]


@cache
def table() -> Table:
    return msgspec.json.decode(compiled.as_json(Path(__file__).with_suffix(".yaml")), type=Table)


def told(text: str, sentences: Sequence[str]) -> list[Told]:
    """The symptoms that a text describes, the most specific first. sentences: what a person wrote in it."""
    said = "\n".join(sentences)
    found: dict[str, str] = {}

    def words(name: str) -> str:
        if name not in found:
            found[name] = _found(name, text if name in table().shown else said, sentences)
        return found[name]

    met = []
    for symptom in table().symptoms:
        by = []
        for names in symptom.all:
            if not (match := next(filter(None, map(words, names.split("|"))), "")):
                break
            by.append(match)
        else:
            if not any(map(words, symptom.none)):
                met.append(Told(symptom, tuple(dict.fromkeys(by))))
    return sorted(met, key=lambda one: -len(one.symptom.all))


def _found(name: str, text: str, sentences: Iterable[str]) -> str:
    """The words of a text that say it; "" if none do."""
    at_once, together = ways(name)
    if at_once and (match := at_once.search(text)):
        return match[0]
    for one, other in together:
        if one.search(text) and other.search(text):
            for sentence in sentences:
                if (first := one.search(sentence)) and (second := other.search(sentence)):
                    return sentence[min(first.start(), second.start()) : max(first.end(), second.end())]
    return ""


@cache
def ways(name: str) -> tuple[re.Pattern[str] | None, tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]]:
    """The pattern of all ways to say it at once, and the pairs of patterns that have to be in one sentence."""
    rows = (table().shown.get(name) or table().said[name]).splitlines()
    at_once = [row for row in rows if " & " not in row]
    pairs = tuple(
        tuple(map(_pattern, ([one], [other]))) for one, _, other in (row.partition(" & ") for row in rows if " & " in row)
    )
    return _pattern(at_once) if at_once else None, pairs  # type: ignore[return-value]


def _pattern(rows: Iterable[str]) -> re.Pattern[str]:
    pattern = _with_parts("|".join(rows), table().parts)
    pattern = _TOKEN.sub(lambda token: r"(?:[^\S\n]+)" if token[0] == " " else token[0], pattern.replace(" ... ", _GAP))
    return re.compile(f"{_BEFORE}{pattern}{_AFTER}", re.IGNORECASE)


def _with_parts(pattern: str, parts: Mapping[str, str]) -> str:
    return _PART.sub(lambda part: f"(?:{_with_parts('|'.join(parts[part[1]].splitlines()), parts)})", pattern)
