"""Words that a user wants to redact but that gpudoctor itself uses: replacing them would change its own text."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from gpudoctor import folders
from gpudoctor.errors import UserError

LEAST_CHARACTERS = 2
_NOT_SAID = re.compile(
    r'''
    ^\s*"""(?![\s,.)])[\s\S]*?"""               # a docstring; quotes that end a text stand before one of these
    | (?:^|\s)\#\ .*                            # a remark
    | ^\ +\S+\ https?://\S+ | https?://\S+
    | ^\ +(?:samples|never):.*(?:\n\ +-\ .*)*
    | ^\ +(?:source|known|id):\ .*
    ''',
    re.MULTILINE | re.VERBOSE,
)
_SUFFIXES = (".py", ".yaml", ".html", ".css", ".js", ".json")


def refuse(words: Iterable[str]) -> None:
    """UserError for a word that gpudoctor itself uses: in a field, a check or a message."""
    for word in words:
        if len(word.strip()) < LEAST_CHARACTERS or not re.search(r"\w", word):
            raise UserError(f"{word!r} is too short to be redacted: at least {LEAST_CHARACTERS} letters are needed")
        if not re.search(r"[^\W\d_]", word):
            raise UserError(f"{word!r} cannot be redacted: a plain number can be any version or reading")
        if re.search(rf"(?i)(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", _own()):
            raise UserError(f"{word!r} cannot be redacted: gpudoctor uses this word in its reports")


@functools.cache
def _own() -> str:
    """All text of gpudoctor."""
    ours = (folders.package(), folders.shipped("checks"))
    found = (file for folder in ours for file in folder.rglob("*") if file.suffix in _SUFFIXES)
    files = sorted(file for file in found if file.parent.name != "__pycache__")
    return "\n".join(_NOT_SAID.sub(" ", file.read_text(encoding="utf-8")) for file in files)
