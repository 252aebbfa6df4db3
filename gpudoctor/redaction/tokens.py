"""Tokens, which replace values. The same value gets the same token everywhere."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from gpudoctor.redaction.kinds import DROPPED, KIND_OF

NUMBERED = tuple(word for word in KIND_OF if word not in (*DROPPED, "gpu", "ip"))
_WORDS = "|".join(NUMBERED)
TOKEN = re.compile(
    "|".join(
        (
            rf"(?P<word>{_WORDS})-(?P<number>\d{{1,9}})",
            r"ip-(?:private|public|link)-(?P<subnet>\d+)\.(?P<host>\d+)",
            r"(?P<gpu>\d{8})-0000-4000-8000-0000(?P=gpu)",
            r"<redacted:\w+>",
        )
    )
)
PRESENT = re.compile(rf"(?<![A-Za-z0-9])(?:{TOKEN.pattern})(?![\w-])(?!\.(?:slice|scope|service))")
_SUBNET = "subnet"
SHORTEST_SECRET = 6


def is_token(value: str) -> bool:
    return TOKEN.fullmatch(value) is not None


class Tokens:
    """Value -> token, by kind. keep: kinds that are not replaced. used: the values that were replaced, by kind.

    `given` is the content of a private map: word -> token -> value. Secrets are in no map.
    """

    def __init__(self, keep: Container[str] = (), given: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.keep = keep
        self.used: dict[str, set[str]] = {}
        self.given = 0  # number of tokens so far
        self._of: dict[str, dict[str, str]] = {}
        self._last: dict[str, int] = {}
        for word, values in (given or {}).items():
            self._of[word] = {value: token for token, value in values.items()}
            self.reserve(" ".join(values))
            self.given += len(values)
        for token in self._of.get(_SUBNET, {}).values():
            self._raise(_SUBNET, int(token.rpartition("-")[2]))

    def keeps(self, word: str) -> bool:
        return KIND_OF[word] in self.keep

    def reserve(self, text: str) -> None:
        """Tokens in a text that was already redacted are not given to other values."""
        if "-" not in text:
            return
        for found in PRESENT.finditer(text):
            if found["word"]:
                self._raise(found["word"], int(found["number"]))
            elif found["gpu"]:
                self._raise("gpu", int(found["gpu"]))
            elif found["subnet"]:
                self._raise(_SUBNET, int(found["subnet"]))

    def _raise(self, word: str, number: int) -> None:
        self._last[word] = max(self._last.get(word, 0), number)

    def next(self, word: str) -> int:
        self._last[word] = self._last.get(word, 0) + 1
        return self._last[word]

    def __call__(self, word: str, value: str) -> str:
        """The token of a value: user-1. A value that is a token, or of a kind that is kept, is returned unchanged."""
        if self.keeps(word) or is_token(value) or not value:
            return value
        self.used.setdefault(KIND_OF[word], set()).add(value)
        if word in DROPPED:
            return f"<redacted:{word}>"
        return self.known(word).get(value) or self.give(word, value, f"{word}-{self.next(word)}")

    def expect(self, word: str, value: str) -> None:
        """Prepares a token for a value that may occur."""
        if not is_token(value) and value not in self.known(word):
            self._of.setdefault(word, {})[value] = f"{word}-{self.next(word)}"
            self.given += 1

    def instead(self, word: str, shown: str, value: str) -> str:
        """For a value with several spellings; `shown` is the spelling used here."""
        return shown if self.keeps(word) else self(word, value)

    def give(self, word: str, value: str, token: str) -> str:
        self.used.setdefault(KIND_OF[word], set()).add(value)
        self.given += value not in self.known(word)
        self._of.setdefault(word, {})[value] = token
        return token

    def known(self, word: str) -> dict[str, str]:
        """Value -> token."""
        return self._of.get(word, {})

    def subnet(self, network: str) -> int:
        """The number of a network in which several addresses can have tokens."""
        numbers = self._of.setdefault(_SUBNET, {})
        if network not in numbers:
            numbers[network] = f"{_SUBNET}-{self.next(_SUBNET)}"
        return int(numbers[network].rpartition("-")[2])

    def counts(self) -> dict[str, int]:
        """The number of replaced values of each kind."""
        return {name: len(values) for name, values in self.used.items() if values}

    def private(self) -> dict[str, dict[str, str]]:
        """Word -> token -> value: for the machine's owner only. Nothing that was a secret anywhere is in it."""
        secrets = [value for value in self.used.get("secrets", ()) if len(value) >= SHORTEST_SECRET]
        kept = {
            word: {token: value for value, token in values.items() if not any(secret in value for secret in secrets)}
            for word, values in self._of.items()
        }
        return {word: values for word, values in kept.items() if values}
