"""Reads a file, a gzip file or standard input in pieces, as UTF-8."""

from __future__ import annotations

import codecs
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

from gpudoctor.errors import UserError

CHUNK_BYTES = 1 << 20
MOST_UNPACKED = 4 << 20  # bytes at once
GZIP = b"\x1f\x8b"
# First bytes of a file -> the command that unpacks it.
PACKED = {
    b"\xfd7zXZ\x00": "xz -dc",
    b"BZh": "bzip2 -dc",
    b"\x28\xb5\x2f\xfd": "zstd -dc",
    b"PK\x03\x04": "unzip -p",
}
BINARY = re.compile(rb"\x7fELF|\x89PNG|%PDF|\xff\xd8\xff|GIF8")
# PowerShell writes the two-byte marks; editors on Windows write the mark of three bytes.
MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be", codecs.BOM_UTF8: "utf-8"}


def chunks(path: str) -> Iterator[bytes]:
    """The bytes of a file ("-": standard input) in pieces of some MB; UserError with one line if it cannot be read."""
    try:
        if path == "-" and (sys.stdin is None or sys.stdin.closed):
            raise UserError("cannot read -: standard input is closed")
        if path == "-":
            yield from _decoded(_pieces(sys.stdin.buffer), path)
        else:
            with open(path, "rb") as file:  # noqa: PTH123 (a path that is a pipe or a process substitution, too)
                yield from _decoded(_pieces(file), path)
    except (OSError, zlib.error) as failure:
        raise UserError(f"cannot read {path}: {getattr(failure, 'strerror', None) or failure}") from None


def _decoded(pieces: Iterator[bytes], path: str) -> Iterator[bytes]:
    beginning = next(pieces, b"")
    if len(beginning) < max(map(len, MARKS)):  # a pipe returns what is available
        beginning += next(pieces, b"")
    if beginning.startswith(GZIP):
        pieces = _unpacked(chain((beginning,), pieces))
        beginning = next(pieces, b"")
    _must_be_text(beginning, path)
    mark = next((mark for mark in MARKS if beginning.startswith(mark)), b"")
    rest = chain((beginning[len(mark) :],), pieces)
    return _recoded(rest, MARKS[mark]) if mark else rest


def _must_be_text(beginning: bytes, path: str) -> None:
    by_hand = next((command for mark, command in PACKED.items() if beginning.startswith(mark)), "")
    if by_hand:
        raise UserError(f"{path} is compressed; unpack it first: {by_hand} {path} | gpudoctor explain -")
    if BINARY.match(beginning):
        raise UserError(f"{path} is not a text file")


def _recoded(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", "replace")


def _unpacked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The readable part of a truncated or damaged file; zlib.error if nothing is readable."""
    is_begun = False
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for piece in pieces:
        while piece:
            if unpacker.eof:  # several gzip members in one file, as log rotation leaves them
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                unpacked = unpacker.decompress(piece, MOST_UNPACKED)
            except zlib.error:
                if is_begun:
                    return
                raise
            is_begun = True
            yield unpacked
            piece = unpacker.unconsumed_tail or unpacker.unused_data


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    read = getattr(file, "read1", file.read)  # returns what a terminal or a pipe has, without waiting for more
    while piece := read(CHUNK_BYTES):
        yield piece
