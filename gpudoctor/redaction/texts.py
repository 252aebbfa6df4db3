"""Redacts one text: first by its forms, then every name found anywhere in the snapshot."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator

from gpudoctor.redaction.addresses import Addresses
from gpudoctor.redaction.common import SHORTEST, is_common
from gpudoctor.redaction.credentials import Credentials
from gpudoctor.redaction.identifiers import Identifiers
from gpudoctor.redaction.issued import OF_LETTERS
from gpudoctor.redaction.names import Names
from gpudoctor.redaction.paths import Paths
from gpudoctor.redaction.places import Places
from gpudoctor.redaction.tokens import Tokens, is_token

# A name of one of these kinds is replaced wherever it occurs as a word, unless it is a common word.
SWEPT = (
    "word",
    "user",
    "group",
    "host",
    "domain",
    "container",
    "image",
    "pod",
    "namespace",
    "account",
    "job",
    "iface",
    "serial",
    "volume",
)
_NOTHING_IN_IT = re.compile(
    rf"(?!.{{0,40}}(?:{OF_LETTERS}))[A-Za-z_]{{0,40}} | [\d, ]* | \d+\.\d+ | [\da-f]{{0,11}} | 0x[\da-f]{{1,16}}",
    re.VERBOSE,
)
_MOST_AT_ONCE = 16_384  # characters: the time that a rule takes must not grow with the square of a text
_BREAKS = re.compile(r"[\s,;\"']")
_NUMBER_IN_JSON = re.compile(
    r"""
    \s*(?: "[A-Za-z_ ]{0,40}":[ ] )?
    (?: -?\d+(?:\.\d+)?(?:e[+-]?\d+)? | null | true | false | [][{}]* ),?
    """,
    re.VERBOSE,
)


class Texts:
    """Redacts texts, each once. versions: dotted numbers that are versions. words: words that are not names."""

    def __init__(self, tokens: Tokens, versions: Collection[str] = (), words: Collection[str] = ()) -> None:
        self.tokens = tokens
        self.credentials = Credentials(tokens)
        self.identifiers = Identifiers(tokens)
        self.addresses = Addresses(tokens, versions)
        self.paths = Paths(tokens)
        self.places = Places(tokens, self.paths)
        self._names = Names(tokens, self.places)
        self._words = words
        self._versions = versions
        self._known_by_sign: dict[str, str] = {}
        self._done: dict[str, str] = {}
        self._again: dict[str, str] = {}
        self._swept: tuple[int, re.Pattern[str] | None] = (-1, None)
        self._token_of: dict[str, str] = {}

    def learn(self, texts: Iterable[str]) -> None:
        """Collects all names in the texts before any text is changed; home folders and GPUs first."""
        for text in texts:
            if "GPU-" in text or "MIG-" in text:
                self.identifiers.learn(text)
            if "/home" in text or "/Users/" in text or "/media/" in text:
                for user in self.paths.users(text):
                    self.tokens("user", user)
        for text in texts:
            for piece in self._pieces(text):
                self._by_sign(piece)

    def by_form(self, text: str) -> str:
        """The text without values recognised by their form."""
        if text not in self._done:
            self._done[text] = "".join(map(self._piece_by_form, self._pieces(text)))
        return self._done[text]

    def _piece_by_form(self, piece: str) -> str:
        known = self._by_sign(piece)
        return self._safely(lambda text: self.addresses.replaced(self.places.replaced(text)), known) if known else piece

    def _by_sign(self, text: str) -> str:
        """The text without secrets, ids, and names next to a word that reveals them; "" if it cannot contain any."""
        if text not in self._known_by_sign:
            plain = _NOTHING_IN_IT.fullmatch(text)
            self._known_by_sign[text] = "" if plain else self._safely(self._without_signs, text)
        return self._known_by_sign[text]

    def _without_signs(self, text: str) -> str:
        return self._names.replaced(self.identifiers.replaced(self.credentials.dropped(text)))

    def _pieces(self, text: str) -> list[str]:
        """The text itself, or its parts if it is long."""
        if len(text) <= _MOST_AT_ONCE:
            return [text]
        return list(_cut(self._safely(self.credentials.without_keys, text)))

    def _safely(self, rule: Callable[[str], str], text: str) -> str:
        """A rule that fails costs this text, and not the report."""
        try:
            return rule(text)
        except Exception:
            return self.tokens("secret", text)

    def by_name(self, text: str) -> str:
        """The text without the names that were collected."""
        pattern = self._pattern()
        return pattern.sub(self._token_at, text) if pattern else text

    def _token_at(self, found: re.Match[str]) -> str:
        if found["iface"]:
            return f"{self.tokens.known('iface')[found['iface']]}.{found['number']}"
        name = found[0].lower()
        if name in self.tokens.known("word"):
            return self.tokens("word", name) + ("." if found.string[found.end() : found.end() + 1].isalnum() else "")
        return self._token_of.get(name) or self.places.domain(name)

    def again(self, line: str) -> str:
        """For a report: words next to a name are gpudoctor's own here, as in {"container": "void"}, and reveal nothing."""
        if line not in self._again:
            self._again[line] = line if _NUMBER_IN_JSON.fullmatch(line) else self._swept_once_more(line)
        return self._again[line]

    def _swept_once_more(self, line: str) -> str:
        return "".join(self.by_name(self._safely(self._without_forms, piece)) for piece in self._pieces(line))

    def _without_forms(self, piece: str) -> str:
        return self.addresses.replaced(self.places.replaced(self.identifiers.replaced(self.credentials.dropped(piece))))

    def __call__(self, text: str) -> str:
        return "".join(map(self.by_name, _cut(self.by_form(text))))

    def _pattern(self) -> re.Pattern[str] | None:
        """All names to be replaced as words, the longest first."""
        size = self.tokens.given
        if size != self._swept[0]:
            self._token_of = {name.lower(): token for word in reversed(SWEPT) for name, token in self._names_of(word)}
            forms = [re.escape(name) for name in sorted(self._token_of, key=len, reverse=True)]
            self._token_of |= dict(self._names_of("ip"))
            forms += [rf"(?:[\w-]{{1,63}}\.){{1,12}}{re.escape(name)}" for name, _ in self._names_of("domain")]
            forms += [rf"(?<!\.){re.escape(name)}(?!\.\d)" for name, _ in self._names_of("ip")]
            stems = [re.escape(name) for name, _ in self._names_of("iface")]
            forms += [rf"(?P<iface>{'|'.join(stems) or '(?!)'})(?P<number>\d[\d.]*|)"]
            words = "|".join(re.escape(name) for name in sorted(dict(self._names_of("word")), key=len, reverse=True)) or "(?!)"
            pattern = re.compile(
                rf"""
                (?<![A-Za-z])(?:{words})(?-i:(?![a-z]))
                | (?<![A-Za-z0-9])(?:{"|".join(forms)})(?![A-Za-z0-9]|['’]t\b)
                """,
                re.IGNORECASE | re.VERBOSE,
            )
            self._swept = (size, pattern)
        return self._swept[1]

    def _names_of(self, word: str) -> list[tuple[str, str]]:
        if self.tokens.keeps(word):
            return []
        known = self.tokens.known(word).items()
        if word == "word":
            return [(name, token) for name, token in known if len(name) >= SHORTEST - 1]
        if word == "ip":
            return [(name, token) for name, token in known if name not in self._versions]
        return [(name, token) for name, token in known if not is_token(name) and not is_common(name, self._words)]


def _cut(text: str) -> Iterator[str]:
    """Parts of at most _MOST_AT_ONCE characters; they end between words if there is a gap in the last quarter."""
    while len(text) > _MOST_AT_ONCE:
        last = text[_MOST_AT_ONCE * 3 // 4 : _MOST_AT_ONCE]
        gap = max((found.end() for found in _BREAKS.finditer(last)), default=len(last))
        end = _MOST_AT_ONCE - len(last) + (last.rfind("\n") + 1 or gap)
        yield text[:end]
        text = text[end:]
    yield text
