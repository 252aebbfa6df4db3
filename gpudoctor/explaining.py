"""Resolves the arguments of explain: an id, a code, a message, or files with evidence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.errors import UserError
from gpudoctor.spelling import unknown

_MOST_BLANK_BYTES = 4 << 20

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.evidence import Evidence
    from gpudoctor.model import Check, Report
    from gpudoctor.report.explanation import Here


def explained_anything(report: Report) -> bool:
    return bool(report.diagnosis) or any(text.kinds for text in report.evidence) or not report.evidence


def known(what: Sequence[str]) -> Iterable[str]:
    """The catalog's explanation of an id or a code; nothing for files and messages."""
    name = " ".join(what)
    if not name or are_files(what):
        return ()
    from gpudoctor import catalog
    from gpudoctor.report import explanation

    checks, problems = catalog.checks(), catalog.problems()
    ids = [word.strip().lower().replace("_", "-") for word in what]
    if all(id in checks or id in problems for id in ids):
        machine = here()
        return _apart(
            explanation.of_check(checks[id], machine)
            if id in checks
            else explanation.of_problem([check for check in checks.values() if id in _finds(check)], problems[id][1], machine)
            for id in ids
        )
    from gpudoctor import codes

    code = codes.parse(name)
    if code:
        return codes.lines(code)
    meant = codes.of_number(name)
    if len(meant) > 1:
        raise UserError(f"{name!r} is ambiguous: {', '.join(map(codes.shown, meant))}; give one of these")
    if meant:
        return codes.lines(meant[0])
    if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise UserError(unknown("check or problem", name, {**checks, **problems}))
    return ()


def here() -> Here:
    """What lines to paste depend on, read without a check: the distribution and the Python in use."""
    from gpudoctor.facts.system import FAMILIES, family_of, os_release
    from gpudoctor.report.explanation import Here

    prefix = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    python = str(Path(prefix) / "bin" / "python") if prefix else "python3"
    try:
        known = os_release(Path("/etc/os-release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return Here(python=python)
    family = family_of((known.get("ID", ""), *known.get("ID_LIKE", "").split()))
    places = ("wsl2",) if "WSL_DISTRO_NAME" in os.environ else ("host", "container")
    conda = ("conda",) if os.environ.get("CONDA_PREFIX") else ()
    return Here((family if family in FAMILIES else "other", *places, *conda), python)


def _finds(check: Check) -> set[str]:
    from gpudoctor import catalog

    return {problem.id for problem in catalog.found_by(check)}


def about_words(text: str) -> list[str]:
    """What can be said about a text that no check recognises; nothing if it is not part of anything known."""
    return _mentioned(text) or _part_of(text)


def _mentioned(text: str) -> list[str]:
    """What is known about the codes in a sentence that no check recognises."""
    from gpudoctor import codes

    return list(_apart(codes.lines(code) for code in codes.mentioned(text)))


def _part_of(text: str) -> list[str]:
    """The known messages that contain the given words."""
    from gpudoctor.knowledge import messages

    found = messages.with_words(text)
    if not found:
        return []
    lines = ["Too little to go on. Known messages that contain these words:"]
    for sample, problem in found:
        lines += ["", f"  {sample}", f"    usually: gpudoctor explain {problem}"]
    return [*lines, "", "Give the full message, or the log that contains it: gpudoctor explain FILE"]


def _apart(texts: Iterable[Iterable[str]]) -> Iterator[str]:
    for place, lines in enumerate(texts):
        yield from ["", ""] if place else []
        yield from lines


def are_files(what: Sequence[str]) -> bool:
    """Whether the arguments are files. UserError for a missing file among existing ones, or for a missing path."""
    missing = [name for name in what if name != "-" and not _is_there(name)]
    looks = [name for name in missing if re.fullmatch(r"\S*/\S+|\S+\.(?:log|txt|json|gz|xml|out|err)(?:\.\d+)?", name)]
    if missing and (len(missing) < len(what) or looks == missing):
        raise UserError(f"{missing[0]} does not exist")
    return bool(what) and not missing


def _is_there(name: str) -> bool:
    """A name that is too long is a message; a file in a folder without access exists but cannot be read."""
    try:
        return Path(name).exists()
    except PermissionError:
        return not re.search(r"\s", name)
    except OSError:
        return False


def gathered(what: Sequence[str]) -> Evidence:
    """The evidence in files ("-": standard input) or in a pasted text."""
    from gpudoctor import evidence

    return gather(what) if are_files(what) else evidence.of_text(" ".join(what))


def gather(paths: Iterable[str]) -> Evidence:
    """Reads files; a later file overrides an earlier one. UserError if a file cannot be read, or the only file is empty."""
    from gpudoctor import source
    from gpudoctor.evidence import Evidence
    from gpudoctor.files import opening

    found = Evidence()
    paths = tuple(paths)
    for path in paths:
        chunks = source.chunks(path)
        beginning = _until_something(chunks)
        name = "standard input" if path == "-" else path
        if not beginning.strip() and len(paths) == 1:
            raise UserError(f"{name} is empty")
        if opening.is_ours(beginning):
            found = replace(found, snapshot=opening.snapshot_from(name, beginning, chunks))
        else:
            found = found.with_text(name, beginning, chunks)
    return found


def _until_something(chunks: Iterator[bytes]) -> bytes:
    """The first pieces until one holds more than blanks: a pipe brings a line at a time."""
    found, size = [], 0
    for piece in chunks:
        found.append(piece)
        size += len(piece)
        if size > _MOST_BLANK_BYTES or piece.strip():
            break
    return b"".join(found)


def checkup_of(what: Sequence[str]) -> Checkup:
    """The checkup of what files or a pasted text prove about a machine."""
    from gpudoctor import evidence
    from gpudoctor.checkup import Checkup

    return Checkup(snapshot=evidence.snapshot_of(gathered(what)))
