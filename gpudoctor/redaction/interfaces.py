"""Names of network interfaces: names given by the kernel stay; a bond named after a site is replaced."""

from __future__ import annotations

import re

from gpudoctor.redaction.tokens import Tokens, is_token
from gpudoctor.redaction.vocabulary import INTERFACES

_NUMBER = re.compile(r"\d[\d.]*$")


def is_usual(name: str) -> bool:
    return INTERFACES.fullmatch(name.partition(".")[0]) is not None or is_token(name.partition(".")[0])


def replaced(tokens: Tokens, name: str) -> str:
    """Keeps common prefixes: site0 and site1 become iface-1.0 and iface-1.1."""
    number = _NUMBER.search(name)
    stem, rest = (name[: number.start()], number[0]) if number else (name, "")
    if tokens.keeps("iface") or is_usual(name) or not stem:
        return name
    return f"{tokens('iface', stem)}.{rest}"
