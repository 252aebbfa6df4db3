"""Network addresses: IPv4, IPv6 and hardware addresses. A version number is not an address.

A token shows whether an address was private and which others are in its subnet: ip-private-1.2 is the second of the first.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Container

from gpudoctor.redaction.tokens import Tokens
from gpudoctor.redaction.unmatched import Rule, remembering

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_V4 = re.compile(
    r"""
    (?: (?<![\w.]) | (?<=%2F) | (?<=[a-z]_) )(?<!\.-)
    ( \d{1,3}(?:\.\d{1,3}){3} )
    (?! [A-Za-z0-9] | _(?![\dA-Za-z]) | \.\d | \.post | -(?!\d{1,3}\.\d)\w )
    """,
    re.VERBOSE,
)
_V6 = re.compile(
    r"""
    (?: (?<![\w:.]) | (?<=%5B) | (?<=%5b) )
    ( (?:[A-Za-z][\w.-]*:)?? )      # a word before it: "from:fe80::1"
    ( (?:[0-9A-Fa-f]{0,4}:){2,7} (?: [0-9A-Fa-f]{1,4} | (?:\d{1,3}\.){3}\d{1,3} )? )
    (?! \w | :[\w:] | \.\d )
    """,
    re.VERBOSE,
)
_BYTES = re.compile(
    r"(?<![\w:-]) [0-9A-Fa-f]{2} (?: ([:-])[0-9A-Fa-f]{2} ) (?: \1[0-9A-Fa-f]{2} )+ (?! [\w-] | :\w )",
    re.VERBOSE,
)
_MAC_IN_NAME = re.compile(r"(?<![A-Za-z0-9])enx[0-9a-f]{12}(?![A-Za-z0-9])")
_DOTTED_MAC = re.compile(r"(?<![\w.])(?=[\d.]*[a-f])[0-9a-f]{4}(?:\.[0-9a-f]{4}){2}(?![\w.])")
_SAID_MAC = re.compile(
    r"""
    ( (?<![a-z])(?:hw|mac)[_ ]?(?:addr(?:ess)?)?["']? (?: \s?[=:]\s? | [ ] )["']? )
    ( [0-9a-f]{12} )(?!\w)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BYTE_LENGTHS = (6, 8, 14, 20)  # Ethernet, InfiniBand's GUID, the header of a frame, IP over InfiniBand
_GUID = re.compile(r"(?<![\w:])(?:[0-9a-f]{4}:){3}[0-9a-f]{4}(?![\w:])", re.IGNORECASE)
_SAID_GUID = re.compile(
    r"""
    (?<![a-z])( (?: node | port | system | sys | image | s | d | ib | peer )?[_ ]?gu?id[\w ]{0,40}[=:,]?\s{0,40}"? )
    ( 0x[0-9a-f]{12,16} | [0-9a-f]{16} )\b
    | ( \b(?:Ca|Switch|Rt)\s{0,20}:?\s{1,40}(?:\d+\s{1,40})?"? | \b[HSR]- )( (?:0x)?[0-9a-f]{16} )\b  # ibnetdiscover, iblinkinfo
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LID = re.compile(
    r"""
    (?<![a-z])( (?: base | sm | s | d | port | peer | local | remote )?[_ ]?lid\s{0,20}[=:]?\s{0,40} )
    (?!0\b|0x0+\b)( 0x[0-9a-f]+ | \d+ )\b  # 0: none
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NO_ADDRESS = re.compile(r"0|127|255")

# Words before a version, and before an address.
_VERSION = re.compile(
    r"""
    (?:
        version | release | firmware | \bfw | driver | toolkit | sdk | nccl | kernel | linux | python | \bv
        | [=<>~!]= | \.so(?:\.\d+)?\.? | [-_+~]
        | \b(?:tensorrt|trt)[\w-]*
        | \b(?:
            lib | nvidia(?!\d) | cuda(?!-node) | cudnn
            | cu(?:blas|fft|file|pti|rand|solver|sparse|tensor) | nv(?:jitlink|rtc|tx|vm)
        )[\w-]*
    )
    ["'`]?[ \t]*(?: => | [=:(|] )?[ \t]*["'`]?$
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Libraries whose versions have four parts, if named a few words before.
_LIBRARY = re.compile(
    r"(?: curand | cublas | cufft | cusolver | cusparse | cudnn | tensorrt | \btrt )[\w-]*\W+(?:[\w.]+\W+){0,3}$",
    re.IGNORECASE | re.VERBOSE,
)
_ADDRESS = re.compile(
    r"""
    (?:
        // | @ | \[ | %3A%2F%2F
        | (?:
            (?: \baddr | _addr | \bhost | _host | \brhost | \bconnect | \blisten | \bcoordinator | \bleader )\w*
            | \bping | \bssh
            | (?: \bip | _ip | (?-i:[a-z]IP) )s?(?:v[46])?(?:_?addr\w*)?
            | \b(?:master|remote)(?:_?(?:addr|ip|host|node)\w*)?
        )(?: \W{1,3} | :\s+ )
        | \binet6?\s
        | \baddress(?:es)?\ of\W{1,3}
        | \blogin:\ .{0,30}\ from[ ]
        | \b(?:
            peer | bind | via | src | broadcast | netmask | gateway | nameserver | dns | client | endpoint | lookup
            | tcp | udp | clientaddr
        )(?: \W{1,3} | :?\s+ )
        | \b(?:
            connect\w* | bytes | reply | packets? | route\w* | login | ssh\w* | accepted\ \w+\ for\ \S+
        )\ (?:from|to)\W{1,3}
    )$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OF_REQUEST = re.compile(r" - \S+ \[\d|\s+\| (?:GET|HEAD|POST|PUT|DELETE)\b| port \d")  # an access log; an address with its port
_PORT_OR_PREFIX = re.compile(r":\d{2,5}(?!\d)|/\d{1,2}(?![\d.])|<\d+>|\]:\d")
# `pip list`, `dpkg -l`: a name and its version.
_LISTED = re.compile(r"^\s*(?:ii\s+[A-Za-z][\w.+:-]*\s+|[A-Za-z][\w.+-]*[A-Za-z.+-]\s{2,})$")
_NEVER_A_VERSION = re.compile(
    r"""
    192\.168\.
    | 172\.(?: 1[6-9] | 2\d | 3[01] )\.
    | 169\.254\.
    | 100\.(?: 6[4-9] | [7-9]\d | 1[01]\d | 12[0-7] )\.
    """,
    re.VERBOSE,
)
_LARGEST_MAJOR_VERSION = 20
_METADATA_SERVICE = "169.254.169.254"  # of every cloud, the same for all of their machines
_AFTER = 24
_BEFORE = 40  # characters to search for words that announce an address or a version


class Addresses(Rule):
    """Replaces addresses in texts. versions: dotted numbers that are known to be versions."""

    def __init__(self, tokens: Tokens, versions: Container[str] = ()) -> None:
        self._tokens = tokens
        self._versions = versions

    @remembering
    def replaced(self, text: str) -> str:
        text = self._hardware(text)
        if "::" in text or text.count(":") >= 7:
            text = self._sub(_V6, self._v6, text)
        if text.count(".") >= 3:
            text = self._sub(_V4, self._v4, text)
        return text

    def _hardware(self, text: str) -> str:
        if ":" in text or "-" in text:
            text = self._sub(_BYTES, self._bytes, text)
            text = self._sub(_GUID, self._plain_guid, text)
        if "." in text or "ac" in text or "AC" in text or "HW" in text:
            text = self._sub(_DOTTED_MAC, lambda found: self._tokens.instead("mac", found[0], found[0].replace(".", "")), text)
            text = self._sub(_SAID_MAC, lambda found: found[1] + self._tokens.instead("mac", found[2], found[2].lower()), text)
        if any(sign in text for sign in ("id", "ID", "Ca", "Switch", "H-", "S-", "R-")):
            text = self._sub(_SAID_GUID, self._guid, text)
            text = self._sub(_LID, lambda found: found[1] + self._tokens.instead("lid", found[2], str(int(found[2], 0))), text)
        return (
            self._sub(_MAC_IN_NAME, lambda found: self._tokens.instead("mac", found[0], found[0][3:]), text)
            if "enx" in text
            else text
        )

    def _plain_guid(self, found: re.Match[str]) -> str:
        digits = _digits(found[0])
        return found[0] if len(set(digits)) == 1 else self._tokens.instead("guid", found[0], digits)

    def _guid(self, found: re.Match[str]) -> str:
        before, value = (found[1], found[2]) if found[2] else (found[3], found[4])
        return str(before + self._tokens.instead("guid", value, _digits(value)))

    def _bytes(self, found: re.Match[str]) -> str:
        digits = _digits(found[0])
        if len(digits) == 14 and digits.startswith("01"):  # BOOTIF of PXE: the hardware type and its address
            return found[0][:3] + self._tokens.instead("mac", found[0][3:], digits[2:])
        if len(digits) // 2 not in _BYTE_LENGTHS or not digits.strip("0") or not digits.strip("f"):
            return found[0]
        return self._tokens.instead("mac" if len(digits) in (12, 28) else "guid", found[0], digits)

    def _v4(self, found: re.Match[str]) -> str:
        text, start, end = found.string, found.start(), found.end()
        if not _is_address(found[1], text[max(0, start - _BEFORE) : start], text[end : end + _AFTER], self._versions):
            return found[0]
        return self.token(ipaddress.ip_address(found[1]))

    def _v6(self, found: re.Match[str]) -> str:
        told = found[2] if found[2].endswith("::") else found[2].rstrip(":")  # "from fe80::1: refused"
        try:
            address = ipaddress.ip_address(told)
        except ValueError:
            return found[0]
        after = found[2][len(told) :]
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped:
            return f"{found[1]}::ffff:{self.token(mapped)}{after}"
        is_plain = len([part for part in told.split(":") if part]) < 2
        return found[0] if is_plain else found[1] + self.token(address) + after

    def token(self, address: Address) -> str:
        if self._tokens.keeps("ip") or address.is_loopback or address.is_unspecified or address.is_multicast:
            return str(address)
        if str(address) == _METADATA_SERVICE:
            return _METADATA_SERVICE
        value, known = str(address), self._tokens.known("ip")
        if value not in known:
            subnet = self._subnet(address)
            number = 1 + max((int(token.rpartition(".")[2]) for token in known.values() if token.startswith(subnet)), default=0)
            known = {value: subnet + str(0 if _is_network(address) else number)}
        return self._tokens.give("ip", value, known[value])

    def _subnet(self, address: Address) -> str:
        """`ip-private-1.`, if other addresses of the same /24 (for IPv6: /64) have tokens."""
        of = str(ipaddress.ip_network((address, 24 if address.version == 4 else 64), strict=False))
        number = self._tokens.subnet(of)
        scope = "link" if address.is_link_local else "private" if address.is_private else "public"
        return f"ip-{scope}-{number}."


def _digits(text: str) -> str:
    return re.sub(r"[:-]|^0x", "", text).lower()


def _is_network(address: Address) -> bool:
    return address.version == 4 and int(address) & 0xFF == 0


def _is_address(dotted: str, before: str, after: str, versions: Container[str]) -> bool:
    """Whether four numbers are an address, decided by their values and the text around them."""
    parts = dotted.split(".")
    if any((len(part) > 1 and part.startswith("0")) or int(part) > 255 for part in parts) or _NO_ADDRESS.fullmatch(parts[0]):
        return False
    has_port = bool(_PORT_OR_PREFIX.match(after))
    if (dotted in versions or dotted.endswith(".0.0")) and not has_port:
        return False
    if _NEVER_A_VERSION.match(dotted) or has_port:
        return True
    if _VERSION.search(before):
        return False
    if _ADDRESS.search(before) or _OF_REQUEST.match(after):
        return True
    if _LIBRARY.search(before):
        return False
    return not _LISTED.match(before) and (parts[0] == "10" or int(parts[0]) > _LARGEST_MAJOR_VERSION)
