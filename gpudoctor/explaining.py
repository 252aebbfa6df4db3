"""Resolves the arguments of explain: an id, a code, a message, or files with evidence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor.errors import UserError
from gpudoctor.model import Check, Problem, Status
from gpudoctor.spelling import is_typo, unknown

_MOST_BLANK_BYTES = 4 << 20

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.codes import Code
    from gpudoctor.evidence import Evidence
    from gpudoctor.knowledge.practices import Practice
    from gpudoctor.model import Report
    from gpudoctor.report.explanation import Here


def explained_anything(report: Report) -> bool:
    """Not if a text reports an error, or its author complains, and nothing in it explains that."""
    if report.diagnosis or report.notes or not report.evidence:
        return True
    return report.status is not Status.SKIP and any(text.kinds for text in report.evidence)


def known(what: Sequence[str]) -> Iterable[str]:
    """The explanation of checks, problems, practices or a code; nothing for files and messages."""
    from gpudoctor import catalog, codes
    from gpudoctor.knowledge.practices import Practice
    from gpudoctor.report import explanation, practice

    machine = here()

    def lines(subject: Check | Problem | Practice | Code) -> Iterable[str]:
        if isinstance(subject, codes.Code):
            return codes.lines(subject)
        if isinstance(subject, Practice):
            return practice.lines(subject)
        if isinstance(subject, Check):
            return explanation.of_check(subject, machine)
        return explanation.of_problem(catalog.finders(subject.id), subject, machine)

    return _apart(map(lines, _subjects(what)))


def known_as_json(what: Sequence[str]) -> str:
    """Like `known`; "" for files and messages."""
    from gpudoctor import catalog, codes
    from gpudoctor.codes import as_json
    from gpudoctor.knowledge.practices import Practice

    def entry(subject: Check | Problem | Practice | Code) -> dict[str, Any]:
        if isinstance(subject, codes.Code):
            return as_json.of_code(subject)
        if isinstance(subject, Practice):
            return as_json.of_practice(subject)
        if isinstance(subject, Check):
            return as_json.of_check(subject)
        return as_json.of_problem(catalog.finders(subject.id), subject)

    found = list(map(entry, _subjects(what)))
    return as_json.render(found) if found else ""


def _subjects(what: Sequence[str]) -> list[Check | Problem | Practice | Code]:
    """What the arguments name in the catalog or the tables of codes. UserError for what looks like an id and is none.

    A check stands before the practice with the same name. The words of a practice's name may be apart: pinned memory.
    """
    from gpudoctor import catalog
    from gpudoctor.knowledge import practices

    name = " ".join(what)
    ids = [word.strip().lower().replace("_", "-") for word in what]
    of_catalog: dict[str, Check | Problem] = {
        **catalog.problems_by_id(),
        **catalog.checks(),
    }
    named: dict[str, Check | Problem | Practice] = {**practices.names(), **of_catalog}
    if not name or (are_files(what) and not all(id in named and Path(word).is_dir() for id, word in zip(ids, what, strict=True))):
        return []
    if all(id in named for id in ids):
        practised = [practices.names()[id] for id in ids if id in of_catalog and id in practices.names()]
        return [*(named[id] for id in ids), *practised]
    if "-".join(ids) in practices.names():
        return [practices.names()["-".join(ids)]]
    from gpudoctor import codes

    if code := codes.parse(name):
        return [code]
    meant = codes.of_number(name)
    if len(meant) > 1:
        raise UserError(f"{name!r} is ambiguous: {', '.join(map(codes.shown, meant))}; give one of these")
    is_id = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name) or (re.fullmatch(r"[a-z0-9]+", name) and is_typo(name, named))
    if is_id and not meant:
        raise UserError(unknown("check, problem or practice", name, named))
    return [*meant]


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


def mentioned(text: str) -> list[str]:
    """What is known about the codes in a sentence that no check recognises."""
    from gpudoctor import codes

    return list(_apart(codes.lines(code) for code in codes.mentioned(text)))


def parts_of_messages(text: str) -> list[str]:
    """The known messages that contain the given words; nothing if none does."""
    from gpudoctor.knowledge import messages

    found = messages.with_words(text)
    if not found:
        return []
    lines = ["Nothing in this text is recognised. Known messages that contain these words:"]
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
