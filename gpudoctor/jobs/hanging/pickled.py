"""A reader of pickles that holds no code: PyTorch's flight recorder writes its dumps as pickles of plain containers.

pickle.loads runs what a pickle names. Here every opcode is known, and those that import, call or build objects are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from gpudoctor.errors import UserError

MOST_STEPS = 8_000_000
_MARK = object()


class Refused(UserError):
    """Not a pickle of plain containers, or too large."""


def plain(data: bytes) -> Any:
    """The containers, texts and numbers of a pickle."""
    try:
        return _Reader(data).run()
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, KeyError, ValueError) as failure:
        raise Refused(f"a damaged pickle ({type(failure).__name__})") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, steps = self.data, _STEPS
        for _ in range(MOST_STEPS):
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self.stack.pop()
            step = steps.get(code)
            if step is None:
                raise Refused(f"a pickle that is more than plain data (opcode {bytes((code,))!r})")
            step(self)
        raise Refused("a pickle with too many parts")

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise Refused("a pickle that ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str, size: int) -> int:
        return int(struct.unpack(form, self.take(size))[0])

    def since_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise Refused("a damaged pickle")
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def text(self, count: int) -> None:
        self.stack.append(self.take(count).decode("utf-8", "surrogatepass").encode("utf-8", "replace").decode("utf-8"))

    def keep(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def append(self) -> None:
        item = self.stack.pop()
        self._list().append(item)

    def appends(self) -> None:
        items = self.since_mark()
        self._list().extend(items)

    def _list(self) -> list[Any]:
        if not isinstance(self.stack[-1], list):
            raise Refused("a damaged pickle")
        return self.stack[-1]

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._table().update(_pairs([key, value]))

    def set_items(self) -> None:
        items = self.since_mark()
        self._table().update(_pairs(items))

    def _table(self) -> dict[Any, Any]:
        if not isinstance(self.stack[-1], dict):
            raise Refused("a damaged pickle")
        return self.stack[-1]

    def tuple_of(self, count: int) -> None:
        items = tuple(self.stack[-count:])
        if len(items) < count or _MARK in items:
            raise Refused("a damaged pickle")
        self.stack[-count:] = [items]

    def long(self, count: int) -> None:
        if count > 16:
            raise Refused("a pickle with a number of more than 16 bytes")
        self.stack.append(int.from_bytes(self.take(count), "little", signed=True))


def _pairs(items: list[Any]) -> dict[Any, Any]:
    """Keys are texts and numbers: the hash of a tuple of tuples of tuples can take forever."""
    if not all(isinstance(key, (str, int)) for key in items[::2]):
        raise Refused("a pickle with a key that is not a text")
    return dict(zip(items[::2], items[1::2], strict=True))


_STEPS: dict[int, Callable[[_Reader], object]] = {
    ord(code): step
    for code, step in {
        "\x80": lambda reader: reader.take(1),
        "\x95": lambda reader: reader.take(8),  # FRAME
        "(": lambda reader: reader.stack.append(_MARK),
        "]": lambda reader: reader.stack.append([]),
        "}": lambda reader: reader.stack.append({}),
        ")": lambda reader: reader.stack.append(()),
        "N": lambda reader: reader.stack.append(None),
        "\x88": lambda reader: reader.stack.append(True),
        "\x89": lambda reader: reader.stack.append(False),
        "J": lambda reader: reader.stack.append(reader.number("<i", 4)),
        "K": lambda reader: reader.stack.append(reader.number("B", 1)),
        "M": lambda reader: reader.stack.append(reader.number("<H", 2)),
        "G": lambda reader: reader.stack.append(struct.unpack(">d", reader.take(8))[0]),
        "\x8a": lambda reader: reader.long(reader.number("B", 1)),
        "X": lambda reader: reader.text(reader.number("<I", 4)),
        "\x8c": lambda reader: reader.text(reader.number("B", 1)),
        "\x8d": lambda reader: reader.text(reader.number("<Q", 8)),
        "q": lambda reader: reader.keep(reader.number("B", 1)),
        "r": lambda reader: reader.keep(reader.number("<I", 4)),
        "\x94": lambda reader: reader.keep(len(reader.memo)),
        "h": lambda reader: reader.stack.append(reader.memo[reader.number("B", 1)]),
        "j": lambda reader: reader.stack.append(reader.memo[reader.number("<I", 4)]),
        "a": _Reader.append,
        "e": _Reader.appends,
        "s": _Reader.set_item,
        "u": _Reader.set_items,
        "t": lambda reader: reader.stack.append(tuple(reader.since_mark())),
        "l": lambda reader: reader.stack.append(reader.since_mark()),
        "d": lambda reader: reader.stack.append(_pairs(reader.since_mark())),
        "\x85": lambda reader: reader.tuple_of(1),
        "\x86": lambda reader: reader.tuple_of(2),
        "\x87": lambda reader: reader.tuple_of(3),
    }.items()
}
