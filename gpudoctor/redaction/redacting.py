"""Redacts a snapshot, and once more what is rendered from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gpudoctor.errors import UserError
from gpudoctor.model import Snapshot
from gpudoctor.redaction.kinds import KEPT_ON_REQUEST, KINDS, counted
from gpudoctor.redaction.tokens import PRESENT, Tokens
from gpudoctor.redaction.walking import changed, strings, walked

if TYPE_CHECKING:
    from gpudoctor.redaction.texts import Texts

_NO_TEXT = re.compile(r"(<(?:script|style)\b.*?</(?:script|style)>|data:[\w/+.-]+;base64,[\w+/=]+)", re.DOTALL)


@dataclass(frozen=True)
class Redacted:
    """A redacted snapshot, with the tokens and names found during redaction."""

    snapshot: Snapshot
    tokens: Tokens
    _texts: Texts

    def sweep(self, text: str) -> str:
        """Redacts a rendered text once more, except for scripts and packed data in a page, which would break."""
        if text.startswith("{"):
            plain = changed(msgspec.json.decode(text), self._texts.again)
            is_a_line = "\n" not in text.rstrip("\n")  # it may be appended to a file of lines
            return msgspec.json.format(msgspec.json.encode(plain), indent=-1 if is_a_line else 2).decode() + "\n"
        parts = _NO_TEXT.split(text)
        parts[::2] = ["\n".join(map(self._texts.again, part.split("\n"))) for part in parts[::2]]
        return "".join(parts)

    def summary(self) -> str:
        """One line: Redacted: 14 values of 5 kinds (2 users, 1 host, …)."""
        return f"Redacted: {self.counted() or 'nothing, no private value was found'}"

    def counted(self) -> str:
        """14 values of 5 kinds (2 users, 1 host, …), or nothing."""
        counts = self.tokens.counts()
        told = ", ".join(counted(name, counts[name]) for name in KINDS if name in counts)
        values, kinds = sum(counts.values()), len(counts)
        words = "value" if values == 1 else "values", "kind" if kinds == 1 else "kinds"
        return f"{values} {words[0]} of {kinds} {words[1]} ({told})" if told else ""


def was_redacted(snapshot: Snapshot) -> bool:
    """Whether the snapshot is redacted. A redacted and an unredacted one differ in names and tokens without meaning."""
    return any(map(PRESENT.search, strings(snapshot)))


def redacted(
    snapshot: Snapshot,
    keep: Collection[str] = (),
    words: Collection[str] = (),
    tokens: Mapping[str, Mapping[str, str]] | None = None,
    beside: str = "",
) -> Redacted:
    """UserError for words that gpudoctor itself uses, and for unknown kinds.

    keep: kinds (KEPT_ON_REQUEST) that are not redacted. words: further words to redact. tokens: from an earlier report, read from
    the private map. `beside`: text shown together with it, whose tokens are not given to other values.
    """
    # They compile hundreds of expressions, which whoever only asks for a token would wait for.
    from gpudoctor.redaction import own_words
    from gpudoctor.redaction.structured import structured, versions_of, words_of
    from gpudoctor.redaction.texts import Texts

    own_words.refuse(words)
    for kind in keep:
        if kind not in KEPT_ON_REQUEST:
            raise UserError(f"{kind!r} is not one of {', '.join(KEPT_ON_REQUEST)}")
    known = Tokens(frozenset(keep), tokens)
    texts = Texts(known, versions_of(snapshot), words_of(snapshot))
    every = strings(snapshot)
    for text in (*every, beside):
        known.reserve(text)
    for word in words:
        known.expect("word", word.strip().lower())
    texts.learn(every)
    first = structured(snapshot, texts)
    for text in strings(first):
        texts.by_form(text)
    return Redacted(walked(first, texts), known, texts)
