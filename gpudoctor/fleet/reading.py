"""Reads the snapshots of many machines. An answer that several machines gave alike is decoded and checked once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from gpudoctor.errors import UserError
from gpudoctor.facts import shapes, shapes_measured, shared
from gpudoctor.files import opening
from gpudoctor.fleet.model import NODE_SCHEMA, State
from gpudoctor.model import SNAPSHOT_SCHEMA, Reply, Report, Snapshot
from gpudoctor.protocol import MOST_LEVELS

MOST_BYTES = 32 << 20  # of one node
REMEMBERED_BYTES = 8 << 20  # of answers, as JSON
MOST_FIELDS = 8192  # of answers about GPUs
OF_GPU = "nvml:gpu"

_LARGE = b"0" * 19
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_REPLY = msgspec.json.Decoder(Reply)

Raws = dict[str, msgspec.Raw]


class _Raw(msgspec.Struct):
    """A snapshot whose replies are not decoded yet."""

    schema: str
    version: str
    taken: str
    replies: Raws
    expected: dict[str, int] = {}
    measured: Raws = {}
    baseline: dict[str, dict[str, float]] = {}
    host: Raws = {}
    level: str = ""
    ignored: dict[str, dict[str, str]] = {}
    experiments: Raws = {}


class _OfGpu(msgspec.Struct):
    """The reply about a GPU whose fields are not decoded yet."""

    value: Raws
    status: str
    detail: str = ""
    seconds: float = 0.0


class Unanswered(msgspec.Struct):
    """What is kept of a node that gave no snapshot."""

    schema: str
    node: str
    state: State
    detail: str = ""


@dataclass(frozen=True)
class Answers:
    """A snapshot. numbers: question -> a number that is the same for equal answers of one reader."""

    snapshot: Snapshot
    numbers: Mapping[str, int]


Read = Answers | Report | Unanswered


class Reader:
    """Reads nodes one after the other, and remembers the answers of the last ones."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, bytes], tuple[Any, int]] = OrderedDict()
        self._fields: dict[tuple[str, bytes], Any] = {}
        self._bytes = 0
        self._last = 0

    def file(self, path: str) -> Read:
        """The content of a file; UserError if it is not from gpudoctor."""
        data = opening.content(path, MOST_BYTES)
        if frame := _frame(data):
            return opening.safely(partial(self._parsed, frame), data, path)
        schema = opening.schema_of(data, path) if data.lstrip()[:1] == b"{" else ""
        if schema == NODE_SCHEMA:
            return _unanswered(data, path)
        if schema != SNAPSHOT_SCHEMA:
            found = opening.parsed(data, path)
            return found if isinstance(found, Report) else self.snapshot(found)
        return opening.safely(self._broken, data, path)

    def snapshot(self, taken: Snapshot) -> Answers:
        """A snapshot that is in memory."""
        numbers = {}
        for question, reply in taken.replies.items():
            key = question, msgspec.json.encode(reply)
            known = self._remembered(key)
            numbers[question] = known[1] if known else self._number(key, reply)
        return Answers(taken, numbers)

    def _broken(self, data: bytes, path: str) -> Answers:
        """A snapshot whose frame alone cannot be read, to say why."""
        opening.must_be_of_few_values(data, path)
        try:
            raw = msgspec.json.decode(data, type=_Raw)
        except msgspec.ValidationError as failure:
            raise UserError(f"{path} is a broken gpudoctor snapshot: {failure}") from None
        return self._parsed(raw, data, path)

    def _parsed(self, raw: _Raw, data: bytes, path: str) -> Answers:
        try:
            opening.must_be_a_time(raw.taken, path)
            replies, numbers = self._replies(raw.replies, path)
            taken = Snapshot(
                raw.schema,
                raw.version,
                raw.taken,
                replies,
                raw.expected,
                self._measured(raw.measured, path),
                raw.baseline,
                self._replies(raw.host, path)[0],
                raw.level,
                raw.ignored,
                shapes.all_experiments_fitting({id: _decoded(reply, path) for id, reply in raw.experiments.items()}),
            )
        except msgspec.ValidationError as failure:
            raise UserError(f"{path} is a broken gpudoctor snapshot: {failure}") from None
        return Answers(taken, numbers)

    def _measured(self, raws: Raws, path: str) -> dict[str, Reply]:
        """No two machines measure the same, so nothing of it is remembered."""
        named = {id: bytes(raw) for id, raw in raws.items() if shapes_measured.NAMES.fullmatch(id)}
        decode = _REPLY.decode if _is_surely_kept(b" ".join(named.values())) else partial(_decoded, path=path)
        return {id: shapes.fitting(f"measured {id}", decode(raw)) for id, raw in named.items()}

    def _replies(self, raws: Raws, path: str) -> tuple[dict[str, Reply], dict[str, int]]:
        replies: dict[str, Reply] = {}
        numbers: dict[str, int] = {}
        for question, raw in raws.items():
            key = question, bytes(raw)
            if known := self._remembered(key):
                replies[question], numbers[question] = known
                continue
            if question.startswith(OF_GPU):
                reply = shapes.fitting(question, self._of_gpu(raw, path))
            else:
                reply = shapes.fitting(question, _decoded(raw, path))
                reply = replace(reply, value=shared.of(reply.value))
            replies[question], numbers[question] = reply, self._number(key, reply)
        return replies, numbers

    def _of_gpu(self, raw: msgspec.Raw, path: str) -> Reply:
        """No two of these are the same, as they hold the temperature, but most of their fields are."""
        try:
            reply = msgspec.json.decode(raw, type=_OfGpu)
        except msgspec.ValidationError:
            return _decoded(raw, path)
        known, value = self._fields, {}
        for name, part in reply.value.items():
            key = name, bytes(part)
            if key not in known:
                if len(known) > MOST_FIELDS:
                    known.clear()
                known[key] = shared.of(_kept(msgspec.json.decode(part), key[1], path))
            value[name] = known[key]
        return Reply(reply.status, value, reply.detail, reply.seconds)

    def _remembered(self, key: tuple[str, bytes]) -> tuple[Any, int] | None:
        known = self._known.get(key)
        if known:
            self._known.move_to_end(key)
        return known

    def _number(self, key: tuple[str, bytes], made: Any) -> int:
        self._last += 1
        self._known[key] = made, self._last
        self._bytes += len(key[1])
        while self._bytes > REMEMBERED_BYTES:
            (_, oldest), _ = self._known.popitem(last=False)
            self._bytes -= len(oldest)
        return self._last


def _frame(data: bytes) -> _Raw | None:
    """The snapshot in the file; None if there is none, or if it is broken."""
    try:
        opening.must_be_of_few_values(data, "")
        found = msgspec.json.decode(data, type=_Raw)
    except (UserError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.schema == SNAPSHOT_SCHEMA else None


def _decoded(raw: bytes | msgspec.Raw, path: str) -> Reply:
    reply = _REPLY.decode(raw)
    _kept(reply.value, bytes(raw), path)
    return reply


def _kept(value: Any, raw: bytes, path: str) -> Any:
    if not _is_surely_kept(raw):
        opening.must_be_kept([value], path)
    return value


def _is_surely_kept(raw: bytes) -> bool:
    """Whether the bytes alone show that its values can be kept: no half characters, no large integers, few levels."""
    if (b"\\" in raw and b"\\u" in raw) or _may_have_large_integer(raw):
        return False
    brackets = raw.translate(None, _NO_BRACKETS)
    for _ in range(MOST_LEVELS // 2):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return False


def _may_have_large_integer(raw: bytes) -> bool:
    digits = raw.translate(_DIGITS)
    place = digits.find(_LARGE)
    while place >= 0:
        if raw[place - 1 : place] != b".":
            return True
        place = digits.find(_LARGE, place + len(_LARGE))
    return False


def _unanswered(data: bytes, path: str) -> Unanswered:
    try:
        return msgspec.json.decode(data, type=Unanswered)
    except msgspec.ValidationError as failure:
        raise UserError(f"{path} is a broken file of a node: {failure}") from None


def kept(node: str, state: State, detail: str) -> bytes:
    """The file of a node that gave no snapshot."""
    plain: dict[str, Any] = {"schema": NODE_SCHEMA, "node": node, "state": state.value, "detail": detail}
    return msgspec.json.encode(plain) + b"\n"
