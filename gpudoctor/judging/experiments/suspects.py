"""What could be taken away from a program that fails or is slow, the likeliest first."""

from __future__ import annotations

import os.path
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from gpudoctor.judging.experiments.change import entries
from gpudoctor.judging.experiments.proof import NAMED
from gpudoctor.judging.experiments.suspect import (
    AFFINITY,
    CURRENT_FOLDER,
    ENTRY,
    FOLDER,
    LIMIT,
    PATHS,
    USER_SITE,
    VARIABLE,
    Limit,
    Surroundings,
    Suspect,
)
from gpudoctor.knowledge import suspects as known

FITTING, POSSIBLE = 30, 1
USUAL_PROGRAMS = re.compile(r"(/usr(/local)?)?/s?bin|/usr/games|/usr/local/games|/snap/bin")


@dataclass(frozen=True)
class Failure:
    """What a program printed when it failed. blamed: variables that a finding about this machine names. is_slow: it did not fail.
    readers: the frameworks and libraries that it uses, as far as known."""

    words: str = ""
    blamed: Collection[str] = ()
    is_slow: bool = False
    readers: Collection[str] = ()

    @property
    def last_line(self) -> str:
        """The error itself; the lines before it are a traceback, with paths that have nothing to do with it."""
        return self.words.strip().rpartition("\n")[2]


def suspects(surroundings: Surroundings, failure: Failure) -> tuple[Suspect, ...]:
    """All that may be taken away, the likeliest first: what the words or a finding name, then what fits, then the rest.

    What only programs read that the failed one does not use is left out, unless its readers are unknown.
    """
    every = (
        *_variables(surroundings, failure),
        *_entries(surroundings, failure),
        *_python(surroundings, failure),
        *_folders(surroundings, failure),
        *_limits(surroundings, failure),
        *_cores(surroundings, failure),
    )
    return tuple(sorted(filter(None, every), key=_rank))


def _rank(suspect: Suspect) -> tuple[int, int]:
    """Of two folders that the words name, the longer one first: it can be inside the other."""
    return -suspect.weight, -len(suspect.value) if suspect.weight == NAMED else 0


def _made(kind: str, name: str, value: str, row: known.Of, failure: Failure) -> Suspect | None:
    if name in failure.blamed:
        return Suspect(kind, name, value, "a finding names it", NAMED)
    if kind != LIMIT and (_has_name(failure.words, name) or _has_path(failure.last_line, value)):
        return Suspect(kind, name, value, "the error message names it", NAMED)
    used = [reader for reader in row.readers if reader in failure.readers]
    if failure.readers and row.readers and not used:
        return None
    if failure.is_slow:
        return Suspect(kind, name, value, "it can make programs slow", FITTING) if row.slows else None
    if row.explains(failure.last_line):
        return Suspect(kind, name, value, "it can cause this error message", FITTING * 5)
    if row.explains(failure.words) or (kind == ENTRY and _has_path(failure.words, value)):
        return Suspect(kind, name, value, "the output before the error is about it", FITTING)
    if used:
        return Suspect(kind, name, value, f"the program uses {used[0]}, which reads it", FITTING // 3)
    return Suspect(kind, name, value, "it can change how GPU programs run", POSSIBLE)


def _has_name(words: str, name: str) -> bool:
    """A name as short as CC says nothing."""
    return len(name) > len("CXX") and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words) is not None


def _has_path(words: str, value: str) -> bool:
    return "/" in value.strip("/") and re.search(rf"{re.escape(value.rstrip('/'))}(?![\w-])", words) is not None


def _variables(surroundings: Surroundings, failure: Failure) -> Iterator[Suspect | None]:
    folders = {row.name for row in known.table().folders}
    for name, value in surroundings.variables.items():
        row = known.variable(name)
        if row and name not in (*PATHS, *folders):
            yield _made(VARIABLE, name, value, row, failure)


def _entries(surroundings: Surroundings, failure: Failure) -> Iterator[Suspect | None]:
    for row in known.table().lists:
        for entry in dict.fromkeys(entries(row.name, surroundings.variables.get(row.name, ""))):
            is_usual = row.name == "PATH" and (USUAL_PROGRAMS.fullmatch(entry.rstrip("/")) or entry == surroundings.python)
            if not is_usual:
                yield _made(ENTRY, row.name, entry, row, failure)


def _python(surroundings: Surroundings, failure: Failure) -> Iterator[Suspect | None]:
    folders = {USER_SITE: surroundings.user_site, CURRENT_FOLDER: surroundings.current_folder}
    for row in known.table().python:
        if folders[row.name]:
            yield _made(row.name, "", folders[row.name], row, failure)


def _folders(surroundings: Surroundings, failure: Failure) -> Iterator[Suspect | None]:
    home = surroundings.variables.get("HOME", "")
    for row in known.table().folders:
        folder = surroundings.variables.get(row.name) or _default(row, surroundings.variables, home)
        if folder.startswith("~") and not home:
            continue
        if folder:
            folder = os.path.normpath(home + folder[1:] if folder.startswith("~") else folder)
            yield _made(FOLDER, row.name, folder, row, failure)


def _default(row: known.Folder, variables: Mapping[str, str], home: str) -> str:
    user = variables.get("LOGNAME") or variables.get("USER") or home.rpartition("/")[2]
    if "$USER" in row.default and not user:
        return ""
    return row.default.replace("$TMPDIR", variables.get("TMPDIR") or "/tmp").replace("$USER", user)


def is_of_compiler(suspect: Suspect) -> bool:
    """Whether it is a folder that keeps what programs compile."""
    return suspect.kind == FOLDER and any(row.compiled for row in known.table().folders if row.name == suspect.name)


def _limits(surroundings: Surroundings, failure: Failure) -> Iterator[Suspect | None]:
    for row in known.table().limits:
        soft, hard = surroundings.limits.get(row.name, (None, None))
        if soft is not None and soft < row.enough and _may_be_raised((soft, hard), surroundings.raises_hard):
            yield _made(LIMIT, row.name, str(soft), row, failure)


def _may_be_raised(limit: Limit, raises_hard: bool) -> bool:
    soft, hard = limit
    return raises_hard or hard is None or (soft is not None and soft < hard)


def _cores(surroundings: Surroundings, failure: Failure) -> Iterator[Suspect | None]:
    for row in known.table().cores:
        if 0 < surroundings.cores < surroundings.all_cores:
            yield _made(AFFINITY, row.name, str(surroundings.cores), row, failure)
