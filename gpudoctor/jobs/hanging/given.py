"""The files that a user gives: dumps of the flight recorder, and logs, which are evidence of any kind as well."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from gpudoctor import evidence, source
from gpudoctor.errors import UserError
from gpudoctor.evidence import Evidence
from gpudoctor.jobs.hanging import logs, recorder

MOST_FILES = 2048
# Of a folder, only these are read, and the dumps in it.
_LOG = re.compile(
    r"""
    .*\.(?:log|txt|out|err|stdout|stderr|[oe]\d+)(?:[.-]\d+)?(?:\.gz)?
    | (?:slurm-|rank)[\w.-]* | std(?:out|err)
    """,
    re.IGNORECASE | re.VERBOSE,
)


class Given(NamedTuple):
    dumps: list[dict[str, Any]]
    timeouts: list[dict[str, Any]]
    texts: Evidence | None


def read(paths: Iterable[str]) -> Given:
    """UserError if a file cannot be read, or is neither a dump nor a text, or if all files are empty."""
    paths = list(_files(paths))
    dumps, timeouts = [], []
    texts: Evidence | None = None
    is_filled = False
    for path in paths:
        if _is_dump(path):
            dumps.append(recorder.read(path))
            continue
        reading = logs.Found(path)
        pieces = _seen(source.chunks(path), reading)
        texts = (texts or evidence.Evidence()).with_text(path, next(pieces, b""), pieces)
        timeouts += reading.end()
        is_filled = is_filled or reading.is_filled
    if texts and not (dumps or is_filled):
        raise UserError(f"{paths[0]} is empty" if len(paths) == 1 else f"all {len(paths)} files are empty")
    return Given(dumps, timeouts[: logs.MOST_FOUND], texts)


def _seen(pieces: Iterable[bytes], reading: logs.Found) -> Any:
    for piece in pieces:
        reading.chunk(piece)
        yield piece


def _files(paths: Iterable[str]) -> Iterable[str]:
    """A folder stands for the dumps and logs in it."""
    found = list(chain.from_iterable(_in_folder(path) if Path(path).is_dir() else [path] for path in paths))
    if len(found) > MOST_FILES:
        raise UserError(f"{len(found)} files are too many; give at most {MOST_FILES}")
    return found


def _in_folder(folder: str) -> list[str]:
    try:
        files = sorted(entry.path for entry in os.scandir(folder) if entry.is_file())
    except OSError as failure:
        raise UserError(f"{folder}: {failure.strerror}") from None
    if len(files) > MOST_FILES:
        raise UserError(f"{len(files)} files in {folder} are too many; give at most {MOST_FILES}")
    found = [path for path in files if _LOG.fullmatch(Path(path).name) or _is_dump(path)]
    if not found:
        raise UserError(f"{folder} contains no dumps of the flight recorder and no logs (*.log, *.txt, *.out, *.err)")
    return found


def _is_dump(path: str) -> bool:
    if path == "-" or not Path(path).is_file():  # a pipe can be read only once: it is a text
        return False
    try:
        with Path(path).open("rb") as file:
            return recorder.is_dump(file.read(4096))
    except OSError as failure:
        raise UserError(f"cannot read {path}: {failure.strerror}") from None
