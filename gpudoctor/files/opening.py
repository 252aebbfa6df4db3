"""Opens what gpudoctor wrote, including older versions: a snapshot, a report as JSON or HTML, a bundle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec

from gpudoctor import source
from gpudoctor.errors import UserError
from gpudoctor.facts import shapes
from gpudoctor.files import bundle, page, snapshot
from gpudoctor.files.long_lines import without_long_lines
from gpudoctor.model import REPORT_SCHEMA, SNAPSHOT_SCHEMA, Reply, Report, Snapshot
from gpudoctor.plain import plain
from gpudoctor.protocol import MOST_LEVELS, unkept

MOST_BYTES = 128 << 20  # unpacked
MOST_VALUES = 1_000_000  # a machine of eight GPUs has about 50,000
_PARTS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[,\[{]', re.DOTALL)
READABLE = "expected a snapshot, a JSON or HTML report, or a bundle"
_LONGEST_REASON = 300
_REPORT = "report"  # the question answered by a report without a snapshot
_OURS = re.compile(
    rb"""\s* \{ \s* "schema": \s* "gpudoctor\.                             # a snapshot or a report
    | gpudoctor-report/                                                     # a bundle
    | \s* <!doctype\ html> [^\0]{0,2000} <title> [^<]* gpudoctor </title>   # a page""",
    re.VERBOSE,
)
_NAME = re.compile(r"[\w.:-]{0,200}", re.ASCII)
_URL = re.compile(r"https?://[!#-&(-;=?-_a-~]+")  # no quotes, angle brackets or backquotes
Read = TypeVar("Read")


class _Facts(msgspec.Struct):
    """The facts that reports read; of the others they only show what is present."""

    driver_is_open: bool | None = None
    gpus: list[dict[str, str | float | None]] = []
    pci_gpus: list[str] = []
    toolkits: dict[str, str | None] = {}
    packages: dict[str, str] = {}


def read(path: str) -> Report | Snapshot:
    """The content of the file ("-": standard input). UserError if it is none of these formats, or is broken."""
    return parsed(content(path), path)


def content(path: str, most: int = 0) -> bytes:
    """The JSON or the page in the file; for a bundle, the snapshot in it. most: bytes that are read; 0: MOST_BYTES."""
    chunks = source.chunks(path)
    return _data(path, next(chunks, b""), chunks, most)


def parsed(data: bytes, path: str) -> Report | Snapshot:
    """What `content` returned, read; UserError if it is not from gpudoctor."""
    if data.lstrip()[:1] == b"{" and schema_of(data, path).startswith("gpudoctor.report/"):
        return safely(_report, data, path)
    return safely(_snapshot, data, path)


def schema_of(data: bytes, path: str) -> str:
    return safely(_schema, data, path)


def taken_in(path: str) -> Snapshot:
    """The snapshot in a file; UserError if it has no snapshot."""
    chunks = source.chunks(path)
    return snapshot_from(path, next(chunks, b""), chunks)


def snapshot_from(path: str, beginning: bytes, rest: Iterator[bytes]) -> Snapshot:
    """Like `taken_in`, for a file whose beginning was already read."""
    return safely(_snapshot, _data(path, beginning, rest), path)


def is_ours(beginning: bytes) -> bool:
    """Whether a file with this beginning was written by gpudoctor: a snapshot, a report, a page or a bundle."""
    return bool(_OURS.match(beginning))


def safely(read: Callable[[bytes, str], Read], data: bytes, path: str) -> Read:
    """Whatever the file contains, the error is one short line without control characters."""
    try:
        return read(data, path)
    except UserError as failure:
        said = plain(str(failure))
        raise UserError(
            said if len(said) <= _LONGEST_REASON + len(path) else said[: _LONGEST_REASON + len(path)] + " …"
        ) from None
    except RecursionError:
        raise UserError(f"{path} is nested more than {MOST_LEVELS} levels deep: not a file from gpudoctor") from None


def _data(path: str, beginning: bytes, rest: Iterator[bytes], most: int = 0) -> bytes:
    """The JSON or the page in a file; for a bundle, the snapshot in it."""
    if bundle.is_bundle(beginning):
        return bundle.snapshot_in(chain((beginning,), rest), path)
    pieces, size, most = [], 0, most or MOST_BYTES
    for piece in chain((beginning,), rest):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise UserError(f"{path} is larger than {most >> 20} MiB: not a file from gpudoctor")
    data = b"".join(pieces)
    if not data.strip():
        raise UserError(f"{path} is empty{', or was already read' * (path == '-')}: {READABLE}")
    return data


def _snapshot(data: bytes, path: str) -> Snapshot:
    if data.lstrip()[:1] == b"<":
        embedded = page.embedded(data.decode("utf-8", "replace"))
        if not embedded:
            raise UserError(
                f"{path} is a page without a snapshot of gpudoctor, such as one made of a report alone: "
                "pass what it was made of, a report as JSON, a snapshot or a bundle"
            )
        data = embedded
    must_be_of_few_values(data, path)
    if data.lstrip()[:1] != b"{":
        raise UserError(f"{path} contains no gpudoctor snapshot: {READABLE}")
    if not _schema(data, path).startswith("gpudoctor."):
        raise UserError(f"{path} was not written by gpudoctor: {READABLE}")
    taken = snapshot.parse(data, path)
    answers = (taken.replies, taken.measured, taken.host, taken.experiments)
    must_be_kept([reply.value for replies in answers for reply in replies.values()], path)
    must_be_a_time(taken.taken, path)
    taken = without_long_lines(taken, data)
    replies, host = shapes.all_fitting(taken.replies), shapes.all_fitting(taken.host)
    measured, experiments = shapes.all_measured_fitting(taken.measured), shapes.all_experiments_fitting(taken.experiments)
    return replace(taken, replies=replies, host=host, measured=measured, experiments=experiments)


def must_be_of_few_values(data: bytes, path: str, most: int = 0) -> None:
    """UserError before values are made of a file: `[],` takes three bytes there, and seventy in memory."""
    most = most or MOST_VALUES
    if len(data) <= most:
        return
    if sum(map(data.count, (b",", b"[", b"{"))) <= most:
        return
    found = sum(1 for _ in islice(filter(lambda part: part[0][:1] != b'"', _PARTS.finditer(data)), most + 1))
    if found > most:
        raise UserError(f"{path} has more than {most:,} values: not a file from gpudoctor")


def must_be_kept(values: list[Any], path: str) -> None:
    if why := unkept(values):
        raise UserError(f"{path} is not a file from gpudoctor: {why}")


def must_be_a_time(said: Any, path: str) -> None:
    try:
        datetime.fromisoformat(str(said).replace("Z", "+00:00"))
    except ValueError:
        raise UserError(f"{path} is broken: {str(said)!r} is not a valid time") from None


def _schema(data: bytes, path: str) -> str:
    try:
        return str(msgspec.json.decode(data, type=snapshot.Head).schema)
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise UserError(f"{path} is not a complete gpudoctor snapshot or report ({failure}): {READABLE}") from None


def _report(data: bytes, path: str) -> Report:
    must_be_of_few_values(data, path)
    plain = msgspec.json.decode(data)
    must_be_kept([plain], path)
    schema = plain.get("schema")
    if schema != REPORT_SCHEMA:
        raise UserError(f"{path} is not a report that this version can read: its schema is {schema!r}, not {REPORT_SCHEMA!r}")
    try:
        report = msgspec.convert(plain, Report)
        msgspec.convert(report.facts, _Facts)
    except msgspec.ValidationError as failure:
        raise UserError(f"{path} is a broken gpudoctor report: {failure}") from None
    if "taken" in report.target:
        must_be_a_time(report.target["taken"], path)
    _must_have_names(report, path)
    return report


def _must_have_names(report: Report, path: str) -> None:
    """UserError if a name or a reference has characters that one of gpudoctor never has."""
    checks = {id for result in (*report.checks, *report.host) for id in (result.id, result.area, result.blocked_by or "check")}
    problems = {id for entry in report.diagnosis for id in (entry.problem, entry.check, *entry.explains)}
    for name in {*checks, *problems, *report.measured.figures}:
        if not _NAME.fullmatch(name):
            raise UserError(f"{path} is a broken gpudoctor report: a check or a problem is not named {name!r}")
    for reference in (reference for entry in report.diagnosis for reference in entry.references):
        if not _URL.fullmatch(reference):
            raise UserError(f"{path} is a broken gpudoctor report: {reference!r} is not a URL")


def as_answers(report: Report) -> Snapshot:
    """A report without a snapshot, in a form that can be redacted."""
    packages = [{"name": name, "version": version} for name, version in report.facts.get("packages", {}).items()]
    plain = {
        _REPORT: Reply("ok", msgspec.to_builtins(report)),
        "packages": Reply("ok", packages),
    }  # dotted versions in these are not addresses
    return Snapshot(SNAPSHOT_SCHEMA, report.version, str(report.target.get("taken", "")), plain)


def of_answers(redacted: Snapshot) -> Report:
    return msgspec.convert(redacted.replies[_REPORT].value, Report)


def at(taken: Snapshot, level: str | None) -> Snapshot:
    """The snapshot with another level, which also applies when it is saved and judged again."""
    return replace(taken, level=level) if level else taken


def is_redacted(found: Report | Snapshot | None) -> bool:
    from gpudoctor import redaction

    return isinstance(found, Snapshot) and redaction.was_redacted(found)
