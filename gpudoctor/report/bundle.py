"""Packs a bundle: HTML, Markdown and JSON reports, the snapshot, and each raw reply with a manifest."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from gpudoctor.errors import WorkError
from gpudoctor.files import snapshot
from gpudoctor.files.bundle import FOLDER, MANIFEST, SCHEMA, SNAPSHOT
from gpudoctor.model import Reply, Report, Snapshot
from gpudoctor.report import formats

MOST_BYTES = 25_000_000  # what GitHub takes as an attachment
_REPORTS = {"report.html": "html", "report.md": "markdown", "report.json": "json"}
_LEFT_OUT = "left out because the bundle would be too large; see snapshot.json"


@dataclass(frozen=True)
class Answer:
    """file: the path of its content, if there is a reply. about: its entry in the manifest."""

    file: str
    about: dict[str, Any]
    content: bytes | None


def packed(report: Report, taken: Snapshot | None, sweep: Callable[[str], str] = str) -> bytes:
    """A tar.gz of at most MOST_BYTES. If it would be larger, the largest raw replies are left out, and the manifest says so.

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


def _answers(taken: Snapshot) -> Iterator[Answer]:
    """The raw reply of each question; a question without a reply has no file."""
    numbered = 0
    for where, replies in (
        ("machine", taken.replies),
        ("host", taken.host),
        ("measured", taken.measured),
        ("experiments", taken.experiments),
    ):
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
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
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
        seconds = int(datetime.fromisoformat(taken.replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return 0
    return min(max(seconds, 0), 8**11 - 1)  # the digits of a header
