"""Addresses and names: `ip addr`, `ifconfig`, `show_gids`, `ibdev2netdev`, /etc/hosts, and `ip link` of many hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Interface, ip_address

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

_LINK = re.compile(r"^\d+: ([\w.-]+)(?:@[\w.-]+)?: <([^>]*)>")
_INET = re.compile(r"^\s+inet (\d+(?:\.\d+){3})(?:/(\d+)| +netmask (\d+(?:\.\d+){3}))")
_BRIEF = re.compile(r"^([\w.-]+)(?:@[\w.-]+)?\s+(UP|DOWN|UNKNOWN)\s+(\d+(?:\.\d+){3}/\d+)")
_BRIEF_NAME = re.compile(r"^([\w.-]+)(?:@[\w.-]+)?\s+(?:UP|DOWN|UNKNOWN)\s")
_FLAGS = re.compile(r"^([\w.-]+): flags=\d+<([^>]*)>")
_GID = re.compile(
    r"""
    ^(?P<device>[a-z]\w+)\s+\d+\s+(?P<index>\d+)
    \s+(?P<gid>[0-9a-f:]{15,})
    \s+(?P<ip>\d\S+)?\s*v(?P<version>[12])\b
    """,
    re.VERBOSE,
)
_GID_OF_VERBS = re.compile(
    r"""
    ^\s*GID\[\s*(?P<index>\d+)\]:
    \s+(?P<gid>[0-9a-f:.]{5,})
    (?:,\s*RoCE\ v(?P<version>[12]))?
    """,
    re.VERBOSE,
)
_NETDEV = re.compile(r"^(?P<device>[\w-]+) port \d+ ==> (?P<name>[\w.-]+) \(\w+\)")
_HOST = re.compile(
    r"""
    ^\s*(?P<address>\d+(?:\.\d+){3})
    \s+(?P<names>[A-Za-z][\w.-]*(?:\s+[A-Za-z][\w.-]*)*)
    \s*(?:\#.*)?$
    """,
    re.VERBOSE,
)
_OF_HOST = re.compile(
    r"""
    ^(?P<host>[A-Za-z][\w.-]*):\ \s*\d+:
    \ (?P<name>[\w.-]+)(?:@[\w.-]+)?:
    \ <[^>]*>\ mtu\ (?P<mtu>\d+)\b
    """,
    re.VERBOSE,
)


def _addresses(text: str) -> dict[str, Reply] | None:
    found = dict(_pairs(text.splitlines()))
    brief = [match[1] for match in map(_BRIEF_NAME.match, text.splitlines()) if match]
    names = {"glob:/sys/class/net/*": Reply("ok", [f"/sys/class/net/{name}" for name in brief])} if "lo" in brief else {}
    return {**names, **({"shown-addresses": Reply("ok", found)} if found else {})} or None


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Interfaces that are up, with their first IPv4 address."""
    name, seen = "", set()
    for line in lines:
        if match := _LINK.match(line) or _FLAGS.match(line):
            name = match[1] if {"UP", "RUNNING"} & set(match[2].split(",")) else ""
        elif brief := _BRIEF.match(line):
            yield from [(brief[1], brief[3])] if brief[2] != "DOWN" else []
        elif name not in seen and name and (inet := _INET.match(line)):
            seen.add(name)
            yield name, str(IPv4Interface(f"{inet[1]}/{inet[2] or inet[3]}"))


def _gids(text: str) -> dict[str, Reply] | None:
    found: dict[str, dict[str, str]] = {}
    for match in filter(None, (_GID.match(line) or _GID_OF_VERBS.match(line) for line in text.splitlines())):
        said = match.groupdict()
        kind = f"RoCE v{said['version']}" if said["version"] else "InfiniBand"
        found.setdefault(said.get("device") or "", {})[said["index"]] = f"{said['gid']} {kind}"
    return {"shown-gids": Reply("ok", found)} if found else None


def _netdevs(text: str) -> dict[str, Reply] | None:
    found = {match["device"]: match["name"] for match in map(_NETDEV.match, text.splitlines()) if match}
    return {"shown-rdma-netdevs": Reply("ok", found)} if found else None


def _hosts(text: str) -> dict[str, Reply] | None:
    """/etc/hosts and getent hosts: name -> address. Only a list with a loopback address begins a block."""
    found: dict[str, str] = {}
    for match in filter(None, map(_HOST.match, text.splitlines())):
        ip_address(match["address"])
        found |= dict.fromkeys(match["names"].split(), match["address"])
    return {"shown-hosts": Reply("ok", found)} if found else None


def _mtus(text: str) -> dict[str, Reply] | None:
    """`pdsh`, `clush` and `ansible` put the name of the host before each line."""
    found: dict[str, dict[str, int]] = {}
    for match in filter(None, map(_OF_HOST.match, text.splitlines())):
        found.setdefault(match["name"], {})[match["host"]] = int(match["mtu"])
    return {"shown-mtus": Reply("ok", found)} if found else None


READERS = (
    Reader(
        "addresses of the interfaces",
        (": <", "flags=", " UP ", " UNKNOWN "),
        re.compile(rf"{_LINK.pattern}|{_FLAGS.pattern}|{_BRIEF_NAME.pattern}"),
        _addresses,
        re.compile(r"^(?!\s|\d+: |[\w.-]+: flags=|[\w.-]+(?:@[\w.-]+)?\s+(?:UP|DOWN|UNKNOWN)\s)\S"),
        1000,
    ),
    Reader(
        "GIDs of RDMA adapters",
        ("GID[", "fe80:0000:", ":0000:ffff:"),
        re.compile(r"^[a-z]\w+\s+\d+\s+\d+\s+[0-9a-f:]{15,}\s|^\s*GID\[\s*\d+\]:\s"),
        _gids,
        re.compile(r"^(?!\s*GID\[|[a-z]\w+\s+\d+\s+\d+\s)"),
        400,
    ),
    Reader("ibdev2netdev", (" ==> ",), _NETDEV, _netdevs, re.compile(r"^(?!\S+ port \d+ ==>)"), 100),
    Reader(
        "names of hosts",
        ("127.0.0.1", "127.0.1.1"),
        _HOST,
        _hosts,
        re.compile(r"^(?!\s*#|\s*[\da-f:.]+\s+\S+|\s*$)"),
        400,
    ),
    Reader("ip link of many hosts", ("> mtu ",), _OF_HOST, _mtus, re.compile(r"^(?!\S+: )"), 4000),
)
