"""The snapshot inside an HTML page: packed into a script element that browsers do not run, and read back from it."""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib

from gpudoctor.errors import UserError
from gpudoctor.files import snapshot
from gpudoctor.model import Snapshot

TYPE = "application/vnd.gpudoctor.snapshot+gzip"
MOST_BYTES = 128 << 20  # unpacked
_TYPE = f'type="{TYPE}"'
_LONGEST_TAG = 200  # before its type
_GZIP = 16 + zlib.MAX_WBITS


def packed(taken: Snapshot) -> str:
    """Deterministic: the same snapshot gives the same text."""
    return base64.b64encode(gzip.compress(snapshot.dump(taken), 9, mtime=0)).decode("ascii")


def embedded(html: str) -> bytes:
    """The snapshot in a page, as bytes of JSON; b"" without a snapshot, UserError if it cannot be read."""
    at = 0
    while (at := html.find(_TYPE, at) + 1) > 0:
        tag = html.rfind("<", max(at - _LONGEST_TAG, 0), at)
        if tag >= 0 and html[tag : tag + 7].lower() == "<script":
            start = html.find(">", at) + 1
            end = html.find("</script>", start)
            return _unpacked(html[start:end]) if start and end >= 0 else b""
    return b""


def _unpacked(text: str) -> bytes:
    stream = zlib.decompressobj(_GZIP)
    try:
        data = stream.decompress(base64.b64decode(text.strip(), validate=True), MOST_BYTES)
    except (binascii.Error, zlib.error) as failure:
        raise UserError(f"the snapshot in this page is damaged: {failure}") from None
    if stream.unconsumed_tail:
        raise UserError(f"the snapshot in this page is larger than {MOST_BYTES >> 20} MiB when unpacked")
    if not stream.eof:
        raise UserError("the snapshot in this page is incomplete")
    return data
