"""The settings of a user (~/.config/gpudoctor.toml) and of a project ([tool.gpudoctor] of its pyproject.toml)."""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from pathlib import Path
from typing import Any

from gpudoctor import folders
from gpudoctor.choices import LEVELS
from gpudoctor.errors import UserError
from gpudoctor.plain import plain
from gpudoctor.spelling import nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE, PROJECT = "gpudoctor.toml", "pyproject.toml"
_MOST_BYTES = 1 << 20
_MOST_DOTS = 400  # in a line: the parser takes a time that is quadratic in the parts of a dotted key
_OF_A_PROJECT = ("level", "redact", "ignore")  # a project's file may be someone else's: it names no program, path or host
_OF_AN_IGNORED = ("reason", "until")


@dataclass(frozen=True)
class Settings:
    """What is set, by key. python: the environment to examine. ignore: problem -> reason and until, an ISO date.

    sources: key, or ignore.PROBLEM -> the file that sets it.
    """

    level: str | None = None
    python: str | None = None
    redact: bool | None = None
    registry: str | None = None
    ignore: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sources: Mapping[str, Path] = field(default_factory=dict)


KEYS = tuple(name.name for name in fields(Settings) if name.name != "sources")


def current() -> Settings:
    """The settings for this user in the current folder. UserError, in one line, for a broken file."""
    return _merged(tuple(files()))


@functools.cache
def _merged(files: tuple[tuple[Path, bool], ...]) -> Settings:
    found: dict[str, Any] = {"ignore": {}}
    sources: dict[str, Path] = {}
    for path, is_own in files:
        for key, value in _read(path, is_own).items():
            if key == "ignore":
                found["ignore"] |= value
                sources |= {f"ignore.{problem}": path for problem in value}
            elif not (key == "redact" and found.get("redact")):  # a project cannot turn it off
                found[key] = value
                sources[key] = path
    return Settings(**found, sources=sources)


def files() -> Iterator[tuple[Path, bool]]:
    """The user's file, then the project's, which overrides it; and whether the file is the user's."""
    if (own := path_of_user()) and os.path.isfile(own):  # noqa: PTH113 (a closed folder is no error)
        yield own, True
    if project := _project():
        yield project, False


def path_of_user() -> Path | None:
    """None for a user without a home folder."""
    try:
        return folders.config() / FILE
    except folders.NoHome:
        return None


def _project() -> Path | None:
    """The nearest pyproject.toml above the current folder that has settings."""
    try:
        here = Path.cwd()
    except OSError:
        return None
    for folder in (here, *here.parents):
        path = folder / PROJECT
        try:
            if path.is_file() and not _is_planted(path) and b"tool.gpudoctor" in _bytes(path):
                return path
        except (OSError, UserError):
            continue
    return None


def _is_planted(path: Path) -> bool:
    """Whether it is another user's file in a folder in which anybody can make files: /tmp is above many working folders."""
    return bool(path.parent.stat().st_mode & stat.S_IWOTH) and path.lstat().st_uid not in (0, os.geteuid())


def _bytes(path: Path) -> bytes:
    """OSError or UserError for what is not a file of reasonable size."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UserError(f"{path} is not a regular file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise UserError(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
    return data


def _with_short_keys(path: Path, data: bytes) -> bytes:
    for number, line in enumerate(data.splitlines(), 1):
        if line.count(b".") > _MOST_DOTS:
            raise UserError(f"{path}: line {number} has more than {_MOST_DOTS} dots")
    return data


def _read(path: Path, is_own: bool) -> dict[str, Any]:
    try:
        table: Any = tomllib.loads(_with_short_keys(path, _bytes(path)).decode())
    except OSError as failure:
        raise UserError(f"cannot read {path}: {failure.strerror}") from None
    except (ValueError, RecursionError) as failure:
        raise UserError(f"{path} is not valid TOML: {plain(str(failure)).splitlines()[0]}") from None
    if not is_own:
        tools = table.get("tool", {})
        table = tools.get("gpudoctor", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UserError(f"{path}: tool.gpudoctor is not a table")
    allowed = KEYS if is_own else _OF_A_PROJECT
    return {key: _value(path, key, value, is_own) for key, value in table.items() if _must_be_allowed(path, key, allowed)}


def _must_be_allowed(path: Path, key: str, allowed: tuple[str, ...]) -> bool:
    if key in allowed:
        return True
    if key in KEYS:
        raise UserError(f"{path}: {key} cannot be set in a project (allowed: {', '.join(allowed)}); set it in {FILE}")
    near = nearest(key, allowed)
    raise UserError(
        f"{path}: unknown key {key!r}; " + (f"did you mean {near[0]}? " if near else "") + f"Allowed: {', '.join(allowed)}"
    )


def _value(path: Path, key: str, value: Any, is_own: bool) -> Any:
    if key == "ignore":
        return _ignore(path, value)
    if key == "level" and value not in LEVELS:
        raise UserError(f"{path}: level is {value!r}, not one of {', '.join(LEVELS)}")
    if key == "redact" and (not isinstance(value, bool) or not (value or is_own)):
        raise UserError(
            f"{path}: redact is {value!r}, not true" + (" or false" if is_own else ": a project cannot turn redaction off")
        )
    if key in ("python", "registry") and not (isinstance(value, str) and value.strip()):
        raise UserError(f"{path}: {key} is {value!r}, not a text in quotes")
    return os.path.expanduser(value) if key == "python" else value  # noqa: PTH111 (Path.expanduser fails without a home folder)


def _ignore(path: Path, table: Any) -> dict[str, dict[str, str]]:
    if not isinstance(table, dict):
        raise UserError(f'{path}: ignore is not a table of problems, such as PROBLEM = {{ reason = "…", until = 2027-01-31 }}')
    return {problem: _rule(path, problem, rule) for problem, rule in table.items()}


def _rule(path: Path, problem: str, rule: Any) -> dict[str, str]:
    where = f"{path}: ignore.{problem}"
    if not isinstance(rule, dict) or set(rule) != {*_OF_AN_IGNORED}:
        raise UserError(f'{where} needs a reason and a last day: {{ reason = "…", until = 2027-01-31 }}')
    reason, until = rule["reason"], rule["until"]
    if not isinstance(reason, str) or not reason.strip():
        raise UserError(f"{where}: reason is {reason!r}, not a text in quotes")
    return {"reason": " ".join(reason.split()), "until": _day(where, until)}


def _day(where: str, value: Any) -> str:
    try:
        if isinstance(value, str):
            value = date.fromisoformat(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()
    except ValueError:
        pass
    raise UserError(f"{where}: until is {str(value)!r}, not a day such as 2027-01-31")
