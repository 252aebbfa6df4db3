"""Reads the snapshot in a bundle (written by report/bundle.py) without unpacking anything to a folder.

Only one member is read, in bounded memory, whatever else is in it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import msgspec

from gpudoctor.errors import UserError

SCHEMA = "gpudoctor.bundle/1"
FOLDER = "gpudoctor-report"
SNAPSHOT = "snapshot.json"
MANIFEST = "manifest.json"
MOST_UNPACKED_BYTES = 512 << 20
MOST_SNAPSHOT_BYTES = 128 << 20
MOST_MEMBERS = 10_000
_MAGIC, _MAGIC_AT = b"ustar", 257
_BLOCK = 512
_FILES = (b"0", b"\0")
_KINDS = (*_FILES, b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders and pipes have no content


def is_bundle(beginning: bytes) -> bool:
    """Whether a file with this beginning is a tar archive."""
    return beginning[_MAGIC_AT:].startswith(_MAGIC)


def snapshot_in(pieces: Iterator[bytes], name: str) -> bytes:
    """The snapshot of an untrusted bundle; UserError if the snapshot is missing, broken or too large."""
    archive = _Archive(pieces, name)
    expected = ""
    for member, size in archive.members():
        if member == f"{FOLDER}/{MANIFEST}":
            expected = _sum_of_snapshot(archive.content(size, member))
        elif member == f"{FOLDER}/{SNAPSHOT}":
            content = archive.content(size, member)
            if expected in ("", hashlib.sha256(content).hexdigest()):
                return content
            raise UserError(f"{name} was modified: the sha256 of {SNAPSHOT} differs from {MANIFEST}")
        else:
            archive.skip(size)
    raise UserError(
        f"{name} holds no {FOLDER}/{SNAPSHOT}: not a gpudoctor bundle, or one without a snapshot; pass its report instead"
    )


class _Archive:
    """A tar archive of plain files, as gpudoctor writes them: the form of POSIX.1-1988 (ustar), sizes in octal digits.

    Not tarfile: its headers for long names, sparse files and sizes of any length can be made to take hours.
    """

    def __init__(self, pieces: Iterator[bytes], name: str) -> None:
        self._pieces = pieces
        self._name = name
        self._left = MOST_UNPACKED_BYTES
        self._rest = memoryview(b"")

    def members(self) -> Iterator[tuple[str, int]]:
        """Name and size of each; its content has to be taken or skipped before the next."""
        for _ in range(MOST_MEMBERS):
            header = self._take(_BLOCK)
            if not header.strip(b"\0"):
                return
            yield self._member(header)
        raise UserError(f"{self._name} contains more than {MOST_MEMBERS} files: not a bundle from gpudoctor")

    def _member(self, header: bytes) -> tuple[str, int]:
        kind, size = header[156:157], re.fullmatch(rb"0*([0-7]{1,11})[ \0]*", header[124:136])
        if not is_bundle(header) or not _is_whole(header) or not size or kind not in _KINDS:
            raise UserError(f"{self._name} cannot be unpacked: it is not an archive of plain files, as gpudoctor packs them")
        name = header[:100].rstrip(b"\0").decode("utf-8", "replace")
        return (name, int(size[1], 8)) if kind in _FILES else ("", 0)

    def content(self, size: int, member: str) -> bytes:
        if size > MOST_SNAPSHOT_BYTES:
            raise UserError(
                f"{self._name} holds a {member} of more than {MOST_SNAPSHOT_BYTES >> 20} MiB: that is none of gpudoctor"
            )
        content = self._take(size)
        self._take(-size % _BLOCK)
        return content

    def skip(self, size: int) -> None:
        for _ in self._taken(size + -size % _BLOCK):
            pass

    def _take(self, size: int) -> bytes:
        return b"".join(self._taken(size))

    def _taken(self, size: int) -> Iterator[memoryview]:
        while size:
            if not self._rest:
                self._rest = memoryview(self._next())
            part, self._rest = self._rest[:size], self._rest[size:]
            size -= len(part)
            yield part

    def _next(self) -> bytes:
        piece = next(filter(None, self._pieces), None)
        if piece is None:
            raise UserError(f"{self._name} cannot be unpacked: it is cut off")
        self._left -= len(piece)
        if self._left < 0:
            raise UserError(f"{self._name} is larger than {MOST_UNPACKED_BYTES >> 20} MiB when unpacked: not a bundle")
        return piece


def _is_whole(header: bytes) -> bool:
    """Whether its checksum is that of its bytes."""
    said = re.fullmatch(rb" *([0-7]{1,7})[ \0]*", header[148:156])
    return said is not None and int(said[1], 8) == sum(header[:148]) + sum(b" " * 8) + sum(header[156:])


def _sum_of_snapshot(manifest: bytes) -> str:
    """Returns "" if it is missing."""
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
