"""What the tokens of a report that leaves this machine stand for, kept in the private map of its owner."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.redaction import Redacted

_ONE_AT_A_TIME = threading.Lock()


def remember(taken: str, done: Redacted) -> str:
    """Writes the private map; taken: when the report was. A map that cannot be written costs nothing but what it would have told.

    Returns what is to be said of that, or "".
    """
    from gpudoctor.redaction import private_map

    words = done.tokens.private()
    if not words:
        return ""
    path = private_map.default_path()
    with _ONE_AT_A_TIME:
        try:
            known = private_map.read(path)
        except UserError:
            known = private_map.Map(schema=private_map.SCHEMA, reports={})
        try:
            private_map.write(path, private_map.added(known, taken, words))
        except OSError as failure:
            return f"{path} cannot be written ({failure.strerror}): nobody can tell later what a token stands for."
    return ""
