"""Secrets that dialogues and sentences show: one-time and recovery codes, phrases, what `expect` types, bare hex and base64.

Unlike those of `secret_forms`, their values can be plain numbers or words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudoctor.redaction.literals import Literals

_FACTOR = r"""(?:
    (?:
        one[- ]?time | verification | confirmation | 2fa | mfa | sms | (?:two|second|multi)[- ]factor | authenticator | duo | otp
        | totp | hotp | sign[- ]?in | pairing
    )(?:\ (?: (?:pass)?(?:code|word) | pin | token(?:\ (?:code|value))? )){1,2}
    | 2fa | otp | totp | hotp
)"""
_CODE = r"""(?-i:
    (?: \d{6,8} | \d{3}[ -]\d{3} | [A-Z0-9]{4}-[A-Z0-9]{4} | (?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{8,9} )(?![\w.-]*\w)
)"""
_RECOVERY = r"(?: recovery | backup | scratch | rescue )\ (?:code|key)s?"
_KEPT = r"(?=[\w -]*\d)\w{4,}(?:[ -]\w{4,}){0,7}"
_PHRASE = r"(?:\b(?:seed|recovery|mnemonic|wallet|backup|secret)[ _-]?(?:phrase|words)|\bmnemonic)"
_WORDS = r"(?:[a-z]{3,8},?[ ]+){11,23}[a-z]{3,8}"
_LOGIN = r"""(?:
    (?: user(?:name)? | login | uid | account | db(?:name)? | host(?:name)? | server | domain )\s?[=:]\s?["']?[a-z][\w.@-]*
)"""
_HEX = r"(?=[A-F]*\d)(?=\d*[A-Fa-f]|\d{40})(?:[0-9a-f]{32,}|[0-9A-F]{32,})"
_MIXED = r"(?=[\w+/]*[A-Z])(?=[\w+/]*[a-z])(?=[\w+/]*\d)[A-Za-z0-9+/]{24,}={0,2}"
_BARE = rf"(?-i:(?:{_HEX}|{_MIXED})(?![\w./+-]))"
_OF_SECRETS = r"""(?:
    (?: api | access | secret | auth | license | munge | private | signing | encryption | shared )[ ._-]?key
    | secret | bearer | (?:[a-z]{2,12}[ _-])?auth(?:orization)? | token
)"""
_NO_SECRET = re.compile(
    r"""
    commit | revision | \brev\b | \bgit\b | sha\d | digest | md5 | checksum | hash | cubin | cache | uuid | fatbin | build
    | tokeni[sz]
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Words next to hex that identifies a version or a file."""
_LOGINS = r"""(?:
    oras | crane\ auth | skopeo | buildah | apptainer\ \w+ | singularity\ \w+ | regctl\ \w+ | crictl | cosign
)\ (?:login|pull)
"""

_SPOKEN = tuple(
    re.compile(pattern, re.VERBOSE)
    for pattern in (
        rf"""(?i)
        (
            \b{_FACTOR}(?:\ \([^()\n]{{1,30}}\)){{0,2}}(?:\ for\ [^\s:]{{1,60}})?
            (?: \s?[:=]\s? | \ is:?\ ["']? | \ \( )
        )( {_CODE} )
        """,
        rf"""(?i)
        ( \bpasscode(?:\ or\ option)?(?:\ \([\d-]{{1,9}}\))?:\s? )( {_CODE} )
        """,
        r"""(?i)
        ( --(?: otp | totp | mfa | mfa-code | token-code | verification-code )[ =] )( \d{6,8}\b )
        """,
        rf"""(?i)
        ( \benter\ (?:the|this)\ code:?\ )( {_CODE} )
        """,
        rf"""(?i)
        ( \b{_RECOVERY}(?: \s?[:=]\s? | \ is\ ) )( {_KEPT} )
        """,
        r"( (?<![\w-]) )( (?:\d{6}-){7}\d{6}(?![\w-]) )",  # BitLocker
        r"(?i)( [?&;]\s?secret=|\bsecret\ key\ is:?\ )( [A-Z2-7]{16,} )",
        rf"""
        ( (?i:{_PHRASE})[^\n:=]{{0,30}}[:=]?\s?["']? )( {_WORDS} )(?![A-Za-z_])
        """,
        # A password of letters alone: only where people log in.
        rf"""(?i)
        ( \b{_LOGIN}[^\n]{{0,120}}?[\s,;&?](?: pass= | pw[=:]\s? )["']? )( [^\s"',;&]{{4,}} )
        """,
        rf"""(?i)
        ( (?<![\w-])p(?:w|ass)=["']? )( [^\s"',;&]{{4,}} )(?=[^\n]{{1,120}}\b{_LOGIN})
        """,
        r"(?i)( (?<![\w-])-o\ \S{0,200}\b(?:pass|pw)= )( [^\s,]{3,} )",
        r"(?im)( ^[ \t]*(?:db_|sql_)?pw[ ]?[:=][ ]?[\"']? )( [a-z][^\s\"',()]{4,} )(?=[\"']?\s*$)",
        # Expect: one word, and Return.
        r"""
        ( \bsend\ (?:--\ )?["'] )
        ( (?!(?:yes|exit|quit|logout|reboot|nvidia-smi|enable|shell|clear|whoami|hostname|uptime|continue)\\)[^\s"'/\\]{4,} )
        (?=\\[rn]["'])
        """,
        # Options of clients.
        r"""
        (
            (?: \b(?:http|https|xh)\b[^|\n]{0,200}?\ (?:-a|--auth) | --(?:src-|dest-)?creds )
            [ =]["']?[^\s:"']{1,60}:
        )( [^\s"']{3,} )
        """,
        r"""
        ( \bctr\ [^|\n]{0,200}?\ (?:-u|--user)[ =]["']?(?!\d)[^\s:"']{1,60}: )( [^\s"']{3,} )
        """,
        rf"""
        ( \b(?: {_LOGINS} | mongo(?:sh|dump|restore)? | cqlsh | influx | sqlcmd )\b[^|\n]{{0,200}}?\ -[pP](?!ass)\ ?["']? )
        ( (?!\d+\b)[^\s"'-][^\s"']{{3,}} )
        """,
        r"( \brclone\ (?:config\ )?(?:create|update)\ [^|\n]{1,200}?\ (?:pass|key|token)[ =] )( \S{4,} )",
    )
)
_SPOKEN_BARE = re.compile(
    rf"""(?i)
    (?<![A-Za-z]){_OF_SECRETS}\b[^\n]{{0,40}}?[\s:=>"'(]( {_BARE} )
    """,
    re.VERBOSE,
)
_SIGNS = re.compile(
    r"""
    \b(?:otp|2fa|mfa|duo|sms|totp|hotp)\b | time[ ](?:code|pass) | (?:verification|confirmation|pairing|sign[- ]?in)[ ]code
    | factor | authenticator | passcode | token-code | [ ]code[ :]{1,2} | (?:recovery|backup|scratch|rescue)[ ](?:code|key)
    | phrase | mnemonic | seed[ ]words | \bp(?:w|ass)[ ]?[=:] | \bsend[ ] | -creds | \bctr[ ] | \bhttps?[ ] | \bxh[ ] | [ ]-[pP]
    | \brclone | secret | \d{6}-\d{6}-\d{6}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PARTS_OF_SIGNS = Literals(
    (
        *("otp", "2fa", "mfa", "duo", "sms", "time code", "time pass", "ion code", "ing code", "sign in code", "sign-in code"),
        *("signin code", "factor", "authenticator", "passcode", "token-code", " code", "recovery", "backup", "scratch", "rescue"),
        *("phrase", "mnemonic", "seed words", "pw", "pass", "send ", "-creds", "ctr ", "http", "xh ", " -p", "rclone", "secret"),
        *(f"{before}-{after}" for before in range(10) for after in range(10)),
    )
)
"""A text of ASCII with one of the signs has one of these in lower case."""
_SIGNS_BARE = re.compile(r"key|secret|bearer|auth|token", re.IGNORECASE)
_LONG = re.compile(r"[A-Za-z0-9+/]{24}")

_CODES_BELOW = re.compile(
    rf"(?:{_RECOVERY}|(?:recovery|backup|scratch)\ passwords?)(?:\ (?:are|for)\b[^\n]{{0,40}})?:?\s*$", re.IGNORECASE | re.VERBOSE
)
_ROW_OF_CODES = re.compile(r"\s*(?:\d{1,2}[.)]\s+|[-*]\s+)?(?=\D*\d)[\w-]{4,}(?:\s+[\w-]{4,})*\s*")
_PHRASE_BELOW = re.compile(rf"{_PHRASE}[^\n]{{0,40}}$", re.IGNORECASE)
_ROW_OF_WORDS = re.compile(rf"\s*[\"']?{_WORDS}[\"']?\s*")
_TOKEN_BELOW = re.compile(
    r"""
    \b(?: (?:api|access)[ _-]?key | secret(?:[ _-]?key)? | bearer | token | auth(?:orization)? )s?
    (?:[ ](?:is|below|here))? \s*[:=]?\s*$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ROW_OF_A_TOKEN = re.compile(rf"\s*[\"']?{_BARE}[\"']?\s*".replace("(?-i:", "(?:"))
_LOGIN_ABOVE = re.compile(r"^\s*[\"']?(?:user(?:name)?|login)[\"']?\s?[:=]\s?\S+$", re.IGNORECASE)
_ROW_OF_A_PASSWORD = re.compile(r"\s*[\"']?(?:pass|pw)[\"']?\s?[:=]\s?\S{4,}", re.IGNORECASE)
_BELOW = (
    (_CODES_BELOW, _ROW_OF_CODES, 16),
    (_PHRASE_BELOW, _ROW_OF_WORDS, 1),
    (_TOKEN_BELOW, _ROW_OF_A_TOKEN, 1),
    (_LOGIN_ABOVE, _ROW_OF_A_PASSWORD, 1),
)


def found(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each secret in a text; they can overlap."""
    if (not text.isascii() or _PARTS_OF_SIGNS.any_in(text.lower())) and _SIGNS.search(text):
        for pattern in _SPOKEN:
            yield from (one.span(2) for one in pattern.finditer(text))
    if _SIGNS_BARE.search(text) and _LONG.search(text) and not _NO_SECRET.search(text):
        yield from (one.span(1) for one in _SPOKEN_BARE.finditer(text))


def rows_below(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is a secret that a line above it announces."""
    row, left = _ROW_OF_CODES, 0
    for line in lines:
        is_secret = left > 0 and len(line) < 400 and row.fullmatch(line) is not None
        yield line, is_secret
        left = left - 1 if is_secret or (left and not line.strip()) else 0
        if not is_secret and len(line) < 400:
            left, row = next(((most, form) for head, form, most in _BELOW if head.search(line)), (left, row))
