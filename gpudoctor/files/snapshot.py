"""The snapshot as a file: a machine's answers, to be judged again anywhere."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor.errors import UserError
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Snapshot


class Head(msgspec.Struct):
    """The schema of a file; the rest of it is read past."""

    schema: Any = None


def dump(snapshot: Snapshot) -> bytes:
    """JSON, one question per line; empty fields of a reply are left out."""
    plain = {field.name: getattr(snapshot, field.name) for field in fields(snapshot)}
    for replies in ("replies", "host"):
        plain[replies] = {question: _short(reply) for question, reply in sorted(plain[replies].items())}
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def _short(reply: Reply) -> dict[str, Any]:
    return {field.name: value for field in fields(reply) if (value := getattr(reply, field.name)) != field.default}


def load(path: str) -> Snapshot:
    """Reads a snapshot; UserError with one line about what is wrong with the file."""
    try:
        data = Path(path).read_bytes()
    except OSError as failure:
        raise UserError(f"cannot read {path}: {failure.strerror}") from None
    return parse(data, path)


def parse(data: bytes, name: str) -> Snapshot:
    """Decodes a snapshot's bytes; `name` is their name in messages."""
    try:
        schema = msgspec.json.decode(data, type=Head).schema
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        raise UserError(f"{name} is not a gpudoctor snapshot: {failure}") from None
    if str(schema).startswith("gpudoctor.report/"):
        raise UserError(f"{name} is a report, not a snapshot: save one with --save FILE")
    if schema != SNAPSHOT_SCHEMA:
        raise UserError(f"{name} is not a snapshot that this version can read: its schema is {schema!r}, not {SNAPSHOT_SCHEMA!r}")
    try:
        return msgspec.json.decode(data, type=Snapshot)
    except msgspec.ValidationError as failure:
        raise UserError(f"{name} is a broken gpudoctor snapshot: {failure}") from None
