"""`pip check`, and what pip says about the packages that it leaves with unmet requirements."""

from __future__ import annotations

import re

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_UNMET = re.compile(
    r"""
    ^(?:ERROR:\ )? (?P<package>[A-Za-z][\w.-]*)\ (?P<version>\d\S*)
    \ (?:has\ requirement|requires)\ (?P<requirement>[A-Za-z][^\s,]*(?:,[<>=!~][^\s,]*)*),?(?:\ ;\ .*?,)?
    \ but\ you\ (?:have|'ll\ have)\ (?P<name>\S+)\ (?P<installed>\d\S*?)\.?(?:\ which\ is\ incompatible\.?)?\s*$
    """,
    re.VERBOSE | re.MULTILINE,
)


def read(text: str) -> dict[str, Reply] | None:
    found = {match["package"]: match.groupdict() for match in _UNMET.finditer(text)}
    return {"shown-unmet": Reply("ok", found)} if found else None


READER = Reader(
    "pip check",
    (" has requirement ",),
    re.compile(r"^(?:ERROR: )?[A-Za-z][\w.-]* \d\S* has requirement "),
    read,
    re.compile(r"^(?!(?:ERROR: )?[A-Za-z][\w.-]* \d\S* )"),
    400,
)
