"""Reads the snapshot in a bundle (written by report/bundle.py) without unpacking anything to a folder.

Only one member is read, in bounded memory, whatever else is in it.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
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


def is_bundle(beginning: bytes) -> bool:
    """Whether a file with this beginning is a tar archive."""
    return beginning[_MAGIC_AT:].startswith(_MAGIC)


def snapshot_in(pieces: Iterator[bytes], name: str) -> bytes:
    """The snapshot of an untrusted bundle; UserError if the snapshot is missing, broken or too large."""
    try:
        with tarfile.open(fileobj=_Bounded(pieces, name), mode="r|") as archive:
            return _snapshot_of(archive, name)
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, RecursionError) as failure:
        raise UserError(f"{name} cannot be unpacked: {failure}") from None


def _snapshot_of(archive: tarfile.TarFile, name: str) -> bytes:
    expected = ""
    for count, member in enumerate(archive):
        if count >= MOST_MEMBERS:
            raise UserError(f"{name} contains more than {MOST_MEMBERS} files: not a bundle from gpudoctor")
        # A sparse file of a few bytes can claim any number of zeros.
        if not member.isreg() or member.issparse() or member.name not in (f"{FOLDER}/{MANIFEST}", f"{FOLDER}/{SNAPSHOT}"):
            continue
        if member.size > MOST_SNAPSHOT_BYTES:
            raise UserError(
                f"{name} holds a {member.name} of more than {MOST_SNAPSHOT_BYTES >> 20} MiB: that is none of gpudoctor"
            )
        file = archive.extractfile(member)
        assert file  # it is a regular file
        content = file.read()
        if member.name.endswith(MANIFEST):
            expected = _sum_of_snapshot(content)
        elif expected in ("", hashlib.sha256(content).hexdigest()):
            return content
        else:
            raise UserError(f"{name} was modified: the sha256 of {SNAPSHOT} differs from {MANIFEST}")
    raise UserError(
        f"{name} holds no {FOLDER}/{SNAPSHOT}: not a gpudoctor bundle, or one without a snapshot; pass its report instead"
    )


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


class _Bounded(io.RawIOBase):
    """Reads at most MOST_UNPACKED_BYTES from the pieces."""

    def __init__(self, pieces: Iterator[bytes], name: str) -> None:
        super().__init__()
        self._pieces = pieces
        self._name = name
        self._left = MOST_UNPACKED_BYTES
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._left -= len(piece)
            if self._left < 0:
                raise UserError(f"{self._name} is larger than {MOST_UNPACKED_BYTES >> 20} MiB when unpacked: not a bundle")
            self._rest += piece
        size = len(self._rest) if size < 0 else size
        data, self._rest = self._rest[:size], self._rest[size:]
        return data
