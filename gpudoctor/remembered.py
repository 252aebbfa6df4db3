"""Which Python each of the last reports is about, so that `verify` need not believe what a report says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from gpudoctor import folders, state
from gpudoctor.errors import UserError

MOST_REPORTS = 200

Paths = dict[str, str]  # when a snapshot was taken -> the Python that the user named


def remember(taken: str, python: str) -> None:
    """Without a state folder that can be written, `verify` asks for --python."""
    path = os.path.abspath(python if "/" in python else shutil.which(python) or python)  # noqa: PTH100 (a link stays a link)
    try:
        with state.locked(_file()):
            known = {when: other for when, other in _read().items() if when != taken}
            latest = dict([*known.items(), (taken, path)][-MOST_REPORTS:])
            state.write(_file(), msgspec.json.format(msgspec.json.encode(latest), indent=1) + b"\n")
    except (OSError, UserError):
        pass


def of(taken: str) -> str:
    """The Python of a report that was made here, "" if that is not known."""
    try:
        return _read().get(taken, "")
    except (OSError, UserError):
        return ""


def has(path: str) -> bool:
    """Whether the user examined this Python here before."""
    try:
        return os.path.abspath(path) in _read().values()  # noqa: PTH100 (a link stays a link)
    except (OSError, UserError):
        return False


def _file() -> Path:
    return folders.state() / "pythons.json"


def _read() -> Paths:
    try:
        return msgspec.json.decode(_file().read_bytes(), type=Paths)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
