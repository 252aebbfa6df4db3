"""Secrets in texts. They are removed: without a token or an entry in the private map."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudoctor.redaction import issued, secret_forms, spoken
from gpudoctor.redaction.literals import Literals
from gpudoctor.redaction.tokens import Tokens
from gpudoctor.redaction.unmatched import Rule, remembering

_STARTS = Literals(issued.STARTS)
_PARTS_OF_SIGNS = Literals(secret_forms.PARTS_OF_SIGNS)


class Credentials(Rule):
    """Removes secrets from texts."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    @remembering
    def dropped(self, text: str) -> str:
        text = self.without_keys(text)
        if "://" in text or ":thin:" in text:
            text = self._sub(secret_forms.IN_URL, self._whole, text)
        if _STARTS.places(text) or issued.LONG.search(text):
            text = self._sub(issued.FORMS, self._whole, text)
        text = self._without_spoken(text)
        if _may_have_signs(text) and secret_forms.SIGNS.search(text):
            for pattern in secret_forms.BESIDE:
                text = self._sub(pattern, self._value, text)
        return text

    def without_keys(self, text: str) -> str:
        """The text without private keys and certificates."""
        if "PRIVATE KEY" in text or "BEGIN CERTIFICATE" in text:
            return self._sub(secret_forms.BLOCK, self._whole, text)
        return text

    def _without_spoken(self, text: str) -> str:
        unread = len(text)
        for start, end in sorted(spoken.found(text), reverse=True):
            self.matched += 1
            if end <= unread and not text.startswith("<redacted:", start):
                text, unread = text[:start] + self._tokens("secret", text[start:end]) + text[end:], start
        return text

    def _whole(self, found: re.Match[str]) -> str:
        return self._tokens("secret", found[0])

    def _value(self, found: re.Match[str]) -> str:
        value = found[2].rstrip("\\")
        if not value or secret_forms.HARMLESS.fullmatch(value) or value.startswith("<redacted:"):
            return found[0]
        quote = value[0] if value[0] in "\"'" else ""
        before, after = found[0][: found.start(2) - found.start()], found[0][found.start(2) - found.start() + len(value) :]
        return before + quote + self._tokens("secret", value.strip("\"'\\")) + quote + after

    def without_blocks(self, lines: Iterable[str]) -> list[str]:
        """The lines without private keys and without secrets on the lines below their names."""
        return list(self._without_values(self._without_rows(self._without_keys(lines))))

    def _without_rows(self, lines: Iterable[str]) -> Iterator[str]:
        for line, is_secret in spoken.rows_below(lines):
            indent = len(line) - len(line.lstrip())
            yield line[:indent] + self._tokens("secret", line[indent:]) if is_secret else line

    def _without_keys(self, lines: Iterable[str]) -> Iterator[str]:
        inside = False
        for line in lines:
            begins, ends = secret_forms.BEGIN.search(line), secret_forms.END.search(line)
            inside = inside or bool(begins and not ends)
            yield self._tokens("secret", line) if inside else line
            inside = inside and not ends

    def _without_values(self, lines: Iterable[str]) -> Iterator[str]:
        below, is_named, is_alone = -1, False, False
        for line in lines:
            text = line.lstrip()
            column = len(line) - len(text)
            below = -1 if text and column <= below else below
            value = secret_forms.VALUE.match(text) if is_named else None
            if text and below >= 0:
                line = line[:column] + self._tokens("secret", text)
            elif value:
                line = line[:column] + value[1] + self._tokens("secret", value[2])
            elif is_alone and (alone := secret_forms.BELOW.match(text)):
                line = line[:column] + alone[1] + self._tokens("secret", alone[2]) + alone[3]
            is_alone = secret_forms.ALONE.search(text) is not None
            below = column if secret_forms.OPENED.match(text) else below
            is_named = secret_forms.NAMED.match(text) is not None
            yield line


def _may_have_signs(text: str) -> bool:
    return not text.isascii() or _PARTS_OF_SIGNS.any_in(text.lower())
