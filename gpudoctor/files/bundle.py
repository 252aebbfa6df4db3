"""A bundle to attach: the report as a page, a ticket and JSON, the snapshot, and each raw answer with a manifest.

It is opened without unpacking anything to a folder: one member is read, in bounded memory, whatever else is in it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from gpudoctor.errors import UserError, WorkError
from gpudoctor.files import snapshot
from gpudoctor.model import Reply, Report, Snapshot
from gpudoctor.report import formats

SCHEMA = "gpudoctor.bundle/1"
FOLDER = "gpudoctor-report"
SNAPSHOT = "snapshot.json"
MANIFEST = "manifest.json"
MOST_BYTES = 25_000_000  # what GitHub takes as an attachment
MOST_UNPACKED_BYTES = 512 << 20
MOST_SNAPSHOT_BYTES = 128 << 20
MOST_MEMBERS = 10_000
_REPORTS = {"report.html": "html", "report.md": "markdown", "report.json": "json"}
_MAGIC, _MAGIC_AT = b"ustar", 257
_LEFT_OUT = "left out, since the bundle would be too large; it is in snapshot.json"


@dataclass(frozen=True)
class Answer:
    """file: where its content is kept, of which there is none where nothing was answered. about: what the manifest says of it."""

    file: str
    about: dict[str, Any]
    content: bytes | None


def packed(report: Report, taken: Snapshot | None, sweep: Callable[[str], str] = str) -> bytes:
    """A tar.gz of at most MOST_BYTES: where it would be larger, the largest raw answers are left out, and the manifest says so.

    taken: None where only a report was kept. sweep: what a rendered text goes through. Raises WorkError where even the reports
    are too large.
    """
    files = {name: sweep(formats.render(form, report, taken)).encode() for name, form in _REPORTS.items()}
    answers: list[Answer] = []
    if taken:
        files[SNAPSHOT] = snapshot.dump(taken)
        answers = list(_answers(taken))
    when = _seconds(str(report.target.get("taken", "")))
    smallest_first = sorted((len(answer.content), answer.file) for answer in answers if answer.content is not None)
    kept = len(smallest_first)
    while len(data := _tar(files, answers, {file for _, file in smallest_first[kept:]}, when)) > MOST_BYTES:
        if not kept:
            raise WorkError(f"the bundle would be larger than {MOST_BYTES // 1_000_000} MB: write one format with -o FILE")
        kept //= 2
    return data


def is_bundle(data: bytes) -> bool:
    """Whether packed data is a tar archive."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return file.read(_MAGIC_AT + len(_MAGIC)).endswith(_MAGIC)
    except (OSError, EOFError, zlib.error):
        return False


def snapshot_in(data: bytes, name: str) -> bytes:
    """The snapshot of a bundle that anybody may have made; UserError where it holds none, is broken or too large."""
    try:
        with tarfile.open(fileobj=_Bounded(gzip.GzipFile(fileobj=io.BytesIO(data)), name), mode="r|") as archive:
            return _snapshot_of(archive, name)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError, RecursionError) as failure:
        raise UserError(f"{name} cannot be unpacked: {failure}") from None


def _snapshot_of(archive: tarfile.TarFile, name: str) -> bytes:
    expected = ""
    for count, member in enumerate(archive):
        if count >= MOST_MEMBERS:
            raise UserError(f"{name} holds more than {MOST_MEMBERS} files: that is no bundle of gpudoctor")
        # A sparse file of a few bytes says that it has any number of zeros.
        if not member.isreg() or member.issparse() or member.name not in (f"{FOLDER}/{MANIFEST}", f"{FOLDER}/{SNAPSHOT}"):
            continue
        if member.size > MOST_SNAPSHOT_BYTES:
            raise UserError(
                f"{name} holds a {member.name} of more than {MOST_SNAPSHOT_BYTES >> 20} MiB: that is none of gpudoctor"
            )
        file = archive.extractfile(member)
        assert file  # it is a regular one
        content = file.read()
        if member.name.endswith(MANIFEST):
            expected = _sum_of_snapshot(content)
        elif expected in ("", hashlib.sha256(content).hexdigest()):
            return content
        else:
            raise UserError(f"{name} was changed after it was written: its {SNAPSHOT} has not the sha256 of its {MANIFEST}")
    raise UserError(
        f"{name} holds no {FOLDER}/{SNAPSHOT}: it is no bundle of gpudoctor, or one of a report alone; pass that report"
    )


def _sum_of_snapshot(manifest: bytes) -> str:
    """ "" where it says none."""
    try:
        rows = msgspec.json.decode(manifest, type=_Manifest).files
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return next((row.sha256 for row in rows if row.file == SNAPSHOT), "")


class _Row(msgspec.Struct):
    file: str | None = None
    sha256: str = ""


class _Manifest(msgspec.Struct):
    files: list[_Row]


class _Bounded(io.RawIOBase):
    """Reads no more than MOST_UNPACKED_BYTES of what was packed."""

    def __init__(self, source: gzip.GzipFile, name: str) -> None:
        super().__init__()
        self._source = source
        self._name = name
        self._left = MOST_UNPACKED_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise UserError(f"{self._name} is larger than {MOST_UNPACKED_BYTES >> 20} MiB when unpacked: that is no bundle")
        return data


def _answers(taken: Snapshot) -> Iterator[Answer]:
    """For each question its raw answer; what answered nothing has no file."""
    numbered = 0
    for where, replies in (("machine", taken.replies), ("host", taken.host), ("measured", taken.measured)):
        for question, reply in sorted(replies.items()):
            numbered += 1
            content, suffix = _content(reply)
            exit_code = reply.value.get("code") if isinstance(reply.value, dict) else None
            about = {
                "asked": question,
                "status": reply.status,
                "exit": exit_code,
                "seconds": reply.seconds,
                "detail": reply.detail,
            }
            yield Answer(f"raw/{where}/{numbered:04}-{_short(question)}.{suffix}", about, content)


def _content(reply: Reply) -> tuple[bytes | None, str]:
    if reply.value is None:
        return None, ""
    if isinstance(reply.value, str):
        return reply.value.encode("utf-8", "replace"), "txt"
    if isinstance(reply.value, dict) and {"out", "err"} <= reply.value.keys():
        said = (str(reply.value[stream]) for stream in ("out", "err"))
        return "".join(said).encode("utf-8", "replace"), "txt"
    return msgspec.json.format(msgspec.json.encode(reply.value), indent=1) + b"\n", "json"


def _short(question: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", question).strip("-")[:60].strip("-") or "answer"


def _tar(files: dict[str, bytes], answers: list[Answer], left_out: set[str], when: int) -> bytes:
    kept = {answer.file: answer.content for answer in answers if answer.content is not None and answer.file not in left_out}
    rows = [{**answer.about, **_kept(answer, left_out)} for answer in answers]
    rows += [_known(file, content) for file, content in files.items()]
    manifest = msgspec.json.encode({"schema": SCHEMA, "files": rows})
    contents = {MANIFEST: msgspec.json.format(manifest, indent=1) + b"\n", **files, **kept}
    out = io.BytesIO()
    # Without a file name and a time in its header, and without a user's name in those of its members.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file, content in contents.items():
            member = tarfile.TarInfo(f"{FOLDER}/{file}")
            member.size, member.mtime, member.mode = len(content), when, 0o644
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _kept(answer: Answer, left_out: set[str]) -> dict[str, Any]:
    if answer.content is None:
        return {"file": None}
    return {"file": None, "left_out": _LEFT_OUT} if answer.file in left_out else _known(answer.file, answer.content)


def _known(file: str, content: bytes) -> dict[str, Any]:
    return {"file": file, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _seconds(taken: str) -> int:
    try:
        return int(datetime.fromisoformat(taken.replace("Z", "+00:00")).timestamp())
    except ValueError:
        return 0
