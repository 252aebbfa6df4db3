"""Secrets in texts. They are dropped: no token, and nothing of them in the private map."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpudoctor.redaction.tokens import Tokens

# Forms that tell by themselves, by who gives them out.
_FORMS = re.compile(
    r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|nvapi-[\w-]{16,}|sk-(?:[a-z]+-)*[A-Za-z0-9_-]{20,}|xox[abprs]-[\w-]{10,}|dckr_pat_[\w-]{16,}|pypi-[\w-]{30,}"
    r"|AIza[\w-]{30,}|ya29\.[\w-]{20,}|npm_[A-Za-z0-9]{30,}|wandb_v1_\w{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|xapp-\d-[\w-]{10,}|r8_[A-Za-z0-9]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}|[srp]k_(?:live|test)_\w{10,}|tskey-[\w-]{16,}"
    r"|AGE-SECRET-KEY-\w{10,}|MUNGE:[\w+/=]{8,}|SHA256:[A-Za-z0-9+/]{43}(?![A-Za-z0-9+/])|AAAA[A-Z][0-9A-Za-z]Nz[\w+/=]{10,}"
    r"|LS0tLS1CRUdJTi[\w+/=]+|eyJhdXRocyI6[\w+/=]+)"
)
_STARTS_TEXT = """
    AKIA ASIA hf_ gh glpat nvapi sk- xox dckr pypi- AIza ya29 npm_ wandb_ eyJ xapp- r8_ SG. k_live k_test tskey- AGE- MUNGE:
    SHA256: AAAA LS0tLS1
"""
_STARTS = tuple(_STARTS_TEXT.split())
_IN_URL = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]+(?=@)|(?<=://)[^/@\s:]{20,}(?=@)")
_IN_QUERY = re.compile(r"(?i)(?<=[?&])((?:[\w-]*(?:token|secret|signature|key|password|sig|credential))=)([^&\s\"'<>]{4,})")
_ENCODED = re.compile(r"(?i)((?:token|secret|signature|key|password|sig|credential)%3D)([^&%\s\"'<>]{4,})")
_COOKIE = re.compile(r"(?i)(\b(?:set-)?cookie:[ ]*)([^\s\"'][^\n\"']{3,})")
_NETRC = re.compile(r"(?im)(\blogin\s+\S+\s+password\s+|^\s*password[ \t]+(?=\S+$))(\S{4,})")
_HEADER = re.compile(r"(?i)\b(Bearer|Basic|Authorization[\"']?:(?: ?\w+)?|X-API-Key[\"']?:)[ ]+[\"']?([A-Za-z0-9+/=._~-]{8,})")
_VALUE = r"(?:\"[^\"\n]{3,}\"|'[^'\n]{3,}'|[^\s\"',;&<>{}()\[\]\\]{4,})"
_ESCAPED = r"(?:\\{0,3}[\"'])?"
_NAMED = re.compile(
    r"(?i)((?:pass(?:word|wd|phrase)|secret|credentials?|api[_-]?key|(?:access|private|secret|auth|license|account)"
    r"[_-]?key|(?:api|auth|access|hf|hub|bearer|id|refresh|session|bot|git\w*|wandb|ngc|slack|registry|personal|join|bootstrap)"
    r"[_-]?token|(?<![a-z])(?:token|auth|identitytoken))(?:_?(?:id|value))?"
    + _ESCAPED
    + r"\s?[=:]\s?(?:\\{1,3}[\"'])?)("
    + _VALUE
    + ")"
)
_OPTION = re.compile(
    r"(?i)((?<!\w)--?[\w-]*(?:password|passwd|passphrase|requirepass|secret|token|api[-_]?key|credentials?)[ =])(?!-)("
    + _VALUE
    + ")"
)
_VARIABLE = re.compile(
    r"(\b[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_PASS|_PWD|_KEY|CREDENTIALS?|_AUTH|_PAT)(?:_\w+)?"
    r"(?:=|: (?=\S*\d)(?=\S{8})))"
    r"(\"[^\"\n]+\"|'[^'\n]+'|[^\s\"',;&<>{}()\[\]\\]+)"
)
_SAID = re.compile(r"(?i)(\bpass(?:word|phrase) (?:is|was):? )([\"']?(?=\S*\d)[^\s\"']{6,}[\"']?)")
_LOGIN = re.compile(r"(?i)((?:(?:wandb|huggingface-cli|hf auth|ngc) login (?:--\S+ )*|\bapi key:?\s+))([\w-]{16,})")
_SHORT_OPTION = re.compile(
    r"((?:\b(?:sshpass|mysql|mysqldump|(?:docker|podman|nerdctl|helm registry|az acr) login)\b[^|\n]*? -p ?"
    r"|\bcurl\b[^|\n]*? -u ?[^\s:]+:))"
    r"(?!\d+(?:\s|$))([^\s\"'-][^\s\"']{3,}|\"[^\"\n]+\"|'[^'\n]+')"
)
_WITH_NAMES = (_IN_QUERY, _ENCODED, _HEADER, _COOKIE, _NETRC, _VARIABLE, _OPTION, _SHORT_OPTION, _NAMED, _SAID, _LOGIN)
_NAMES = re.compile(r"(?i)pass|secret|token|key|auth|credential|bearer|basic |login|_pat=|sig=|cookie|_pwd=|mysql|curl|%3d")
_HARMLESS = re.compile(
    r"(?i)[\"']?(?:\d{1,12}(?:\.\d+)?|none|null|nil|true|false|yes|no|removed|/(?:root|etc|home|run|var|usr|opt|tmp|proc|dev)/\S*|XID_\w+|present|required|missing|invalid|unset|empty|set|failed|"
    r"error\w*|<[^>]*>?|\*+|x{3,}|\.\.\.|string|optional\w*|str|int|unknown|type|default|denied|expired|<redacted:\w+>|\$\S*)[\"']?"
)
_BEGIN, _END = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----(?:[^-]|-(?!----END))*(?:-----END \1-----)?")

NAME_OF_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTH|CREDENTIAL")
"""In the name of an environment variable."""


class Credentials:
    """Drops secrets from texts."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def dropped(self, text: str) -> str:
        if "PRIVATE KEY" in text:
            text = _BLOCK.sub(lambda found: self._tokens("secret", found[0]), text)
        if any(start in text for start in _STARTS):
            text = _FORMS.sub(lambda found: self._tokens("secret", found[0]), text)
        if "://" in text:
            text = _IN_URL.sub(lambda found: self._tokens("secret", found[0]), text)
        if _NAMES.search(text):
            for pattern in _WITH_NAMES:
                text = pattern.sub(self._value, text)
        return text

    def _value(self, found: re.Match[str]) -> str:
        value = found[2].rstrip("\\")
        if _HARMLESS.fullmatch(value) or value.startswith("<redacted:"):
            return found[0]
        quote = value[0] if value[0] in "\"'" else ""
        before, after = found[0][: found.start(2) - found.start()], found[0][found.start(2) - found.start() + len(value) :]
        return before + quote + self._tokens("secret", value.strip("\"'\\")) + quote + after

    def without_keys(self, lines: Iterable[str]) -> list[str]:
        """Lines of a text, of which those of a private key are dropped."""
        kept, inside = [], False
        for line in lines:
            begins, ends = _BEGIN.search(line), _END.search(line)
            inside = inside or bool(begins and not ends)
            kept.append(self._tokens("secret", line) if inside else line)
            inside = inside and not ends
        return kept
