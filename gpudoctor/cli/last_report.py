"""The report of the last `gpudoctor check` of this user, so that `gpudoctor verify` needs no file."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from gpudoctor import folders
from gpudoctor.errors import UserError
from gpudoctor.model import Report


def path() -> Path:
    return folders.state() / "last-report.json"


def keep(report: Report) -> None:
    """Readable by this user alone. Without a folder that can be written, there is no last report."""
    from gpudoctor.report import json

    with contextlib.suppress(OSError, RuntimeError, UserError):
        _write(path(), json.render(report).encode("utf-8", "replace"))


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(data)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def name() -> str:
    """The file's path; UserError if nothing was kept."""
    try:
        found = path()
        is_there = found.is_file()
    except (OSError, RuntimeError):
        is_there = False
    if not is_there:
        raise UserError(
            "no report of an earlier check was kept: run gpudoctor check first, or name a report: gpudoctor verify FILE"
        )
    return str(found)
