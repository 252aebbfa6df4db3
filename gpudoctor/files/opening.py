"""What gpudoctor wrote, opened again: a snapshot, a report as JSON or HTML, a bundle; also from an older gpudoctor."""

from __future__ import annotations

import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpudoctor.errors import UserError
from gpudoctor.files import snapshot
from gpudoctor.model import REPORT_SCHEMA, Reply, Report, Snapshot
from gpudoctor.report import words

MOST_BYTES = 128 << 20  # unpacked; in memory it takes ten times as much
MOST_LEVELS = 100  # of lists and tables in one another
READABLE = "what can be read back is a snapshot, a report as JSON or HTML, or a bundle"
_LONGEST_REASON = 300
_REPORT = "report"  # the question that a report without a snapshot answers
_GZIP = b"\x1f\x8b"
Read = TypeVar("Read")


class _Facts(msgspec.Struct):
    """The facts into which reports look; of the others they only show what is there."""

    driver_is_open: bool | None = None
    gpus: list[dict[str, str | float | None]] = []
    pci_gpus: list[str] = []
    toolkits: dict[str, str | None] = {}
    packages: dict[str, str] = {}


@dataclass(frozen=True)
class Opened:
    """taken: None where only a report was kept, which holds no answers of the machine to judge again."""

    name: str
    report: Report
    taken: Snapshot | None


def opened(path: str, level: str | None = None) -> Opened:
    """A snapshot is judged with what is known today, by the checks of the level at which it was taken, or of `level`.

    A report stays as it was written. Raises UserError where the file is nothing of these, or is broken.
    """
    found = read(path)
    if isinstance(found, Report):
        return Opened(path, found, None)
    found = at(found, level)
    return Opened(path, judged(found), found)


def read(path: str) -> Report | Snapshot:
    """What is in the file, not judged. Raises UserError as `opened` does."""
    data = _data(path)
    if data.lstrip()[:1] == b"{" and _safely(_schema, data, path).startswith("gpudoctor.report/"):
        return _safely(_report, data, path)
    return _safely(_snapshot, data, path)


def taken_in(path: str) -> Snapshot:
    """The snapshot in a file; UserError where there is none in it."""
    return _safely(_snapshot, _data(path), path)


def _safely(read: Callable[[bytes, str], Read], data: bytes, path: str) -> Read:
    """Whatever is in the file, the reason why it is refused is one short line that commands no terminal."""
    try:
        return read(data, path)
    except UserError as failure:
        said = words.plain(str(failure))
        raise UserError(
            said if len(said) <= _LONGEST_REASON + len(path) else said[: _LONGEST_REASON + len(path)] + " …"
        ) from None
    except RecursionError:
        raise UserError(f"{path} has lists in lists more than {MOST_LEVELS} levels deep: nothing of gpudoctor has") from None


def _data(path: str) -> bytes:
    """Of a file, or of standard input ("-")."""
    if path == "-" and (sys.stdin is None or sys.stdin.closed):
        raise UserError("- cannot be read: standard input is closed, or was read already")
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as failure:
        raise UserError(f"{path} cannot be read: {failure.strerror}") from None
    if len(data) > MOST_BYTES:
        raise UserError(f"{path} is larger than {MOST_BYTES >> 20} MiB: that is nothing that gpudoctor wrote")
    if not data.strip():
        raise UserError(f"{path} is empty: {READABLE}")
    return _unpacked(data, path) if data.startswith(_GZIP) else data


def _unpacked(data: bytes, path: str) -> bytes:
    """A JSON file that was packed, or the snapshot out of a bundle."""
    from gpudoctor.files import bundle

    if bundle.is_bundle(data):
        return bundle.snapshot_in(data, path)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            plain = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as failure:
        raise UserError(f"{path} cannot be unpacked: {failure}") from None
    if len(plain) > MOST_BYTES:
        raise UserError(f"{path} is larger than {MOST_BYTES >> 20} MiB when unpacked: that is no snapshot")
    return plain


def _snapshot(data: bytes, path: str) -> Snapshot:
    if data.lstrip()[:1] == b"<":
        from gpudoctor.report import html

        embedded = html.embedded(data.decode("utf-8", "replace"))
        if not embedded:
            raise UserError(
                f"{path} is a page without a snapshot of gpudoctor, such as one made of a report alone: "
                "pass what it was made of, a report as JSON, a snapshot or a bundle"
            )
        data = embedded
    if data.lstrip()[:1] != b"{":
        raise UserError(f"{path} holds no snapshot of gpudoctor: {READABLE}")
    if not _schema(data, path).startswith("gpudoctor."):
        raise UserError(f"{path} was not written by gpudoctor: {READABLE}")
    taken = snapshot.parse(data, path)
    answers = (taken.replies, taken.measured, taken.host)
    _must_be_shallow([reply.value for replies in answers for reply in replies.values()])
    _must_be_a_time(taken.taken, path)
    return taken


def _must_be_shallow(values: list[Any]) -> None:
    """RecursionError where they are not, as of a deeper one: what reads answers goes into them level by level."""
    for _ in range(MOST_LEVELS):
        values = [part for value in values if isinstance(value, (dict, list)) for part in _parts(value)]
        if not values:
            return
    raise RecursionError


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _must_be_a_time(said: Any, path: str) -> None:
    try:
        datetime.fromisoformat(str(said).replace("Z", "+00:00"))
    except ValueError:
        raise UserError(f"{path} is broken: {str(said)!r} is no time at which it was taken") from None


def _schema(data: bytes, path: str) -> str:
    try:
        return str(msgspec.json.decode(data, type=dict[str, Any]).get("schema"))
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise UserError(f"{path} is no whole snapshot or report of gpudoctor ({failure}): {READABLE}") from None


def _report(data: bytes, path: str) -> Report:
    plain = msgspec.json.decode(data)
    _must_be_shallow([plain])
    if plain["schema"] != REPORT_SCHEMA:
        raise UserError(
            f"{path} is not a report that this version reads: its schema is {plain['schema']!r}, not {REPORT_SCHEMA!r}"
        )
    try:
        report = msgspec.convert(plain, Report)
        msgspec.convert(report.facts, _Facts)
    except msgspec.ValidationError as failure:
        raise UserError(f"{path} is a broken gpudoctor report: {failure}") from None
    if "taken" in report.target:
        _must_be_a_time(report.target["taken"], path)
    for reference in (reference for entry in report.diagnosis for reference in entry.references):
        if not re.fullmatch(r"https?://[^\s<>\"']+", reference):
            raise UserError(f"{path} is a broken gpudoctor report: {reference!r} is no address of a page")
    return report


def as_answers(report: Report) -> Snapshot:
    """A report of which no snapshot was kept, in the form in which it can be redacted."""
    packages = [{"name": name, "version": version} for name, version in report.facts.get("packages", {}).items()]
    plain = {
        _REPORT: Reply("ok", msgspec.to_builtins(report)),
        "packages": Reply("ok", packages),
    }  # whose versions are no addresses
    return Snapshot(snapshot.SCHEMA, report.version, str(report.target.get("taken", "")), plain)


def of_answers(redacted: Snapshot) -> Report:
    return msgspec.convert(redacted.replies[_REPORT].value, Report)


def at(taken: Snapshot, level: str | None) -> Snapshot:
    """To be judged at another level than that at which it was taken, also by whoever gets it next."""
    return replace(taken, level=level) if level else taken


def is_redacted(found: Report | Snapshot | None) -> bool:
    from gpudoctor import redaction

    return isinstance(found, Snapshot) and redaction.was_redacted(found)


def judged(taken: Snapshot, level: str | None = None) -> Report:
    from gpudoctor import catalog, doctor

    return doctor.judge(taken, doctor.select(catalog.checks(), level or doctor.level_of(taken)))
