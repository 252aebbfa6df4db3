"""The network interfaces as NCCL and Gloo see them, and which of them each chooses by its rules."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from gpudoctor.facts.replies import Replies

_MOST = 16  # MAX_IFS of NCCL


class Interface(NamedTuple):
    """running: up and with a link. has_address: of IPv4 or IPv6."""

    name: str
    running: bool
    loopback: bool
    has_address: bool


class OwnAddress(NamedTuple):
    """kind: interface, loopback, foreign (of no interface here), or unresolved. interface: its name, if known."""

    kind: str
    interface: str


class Sockets:
    """Facts of the probe `addresses`."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    @cached_property
    def interfaces(self) -> tuple[Interface, ...]:
        """In the order of getifaddrs: those with IPv4 first."""
        rows = sorted(self._replies.value("socket-interfaces"), key=lambda row: not row["ipv4"])
        return tuple(Interface(row["name"], row["running"], row["loopback"], row["ipv4"] or row["ipv6"]) for row in rows)

    @cached_property
    def own(self) -> OwnAddress:
        """Where the machine's own name leads."""
        return OwnAddress(**self._replies.value("own-address"))

    def chosen_by_nccl(self, setting: str | None) -> tuple[str, ...]:
        """The interfaces of NCCL's sockets; it finds its ranks over the first. setting: NCCL_SOCKET_IFNAME.

        https://github.com/NVIDIA/nccl/blob/master/src/misc/socket.cc: ncclFindInterfaces, without NCCL_COMM_ID
        """
        usable = [each.name for each in self.interfaces if each.running and each.has_address]
        if setting and len(setting) > 1:
            return tuple(_matching(usable, setting))[:_MOST]
        for rule in ("ib", "^docker,lo,virbr", "docker", "lo", "virbr"):
            if found := tuple(_matching(usable, rule)):
                return found[:_MOST]
        return ()


def _matching(names: Iterable[str], rule: str) -> list[str]:
    """`eth,ib` means names with these prefixes, `=eth0` this name, and `^docker` all others."""
    inverted, rule = rule.startswith("^"), rule.removeprefix("^")
    exact, rule = rule.startswith("="), rule.removeprefix("=")
    wanted = [one for one in rule.split(",") if one]

    def matches(name: str) -> bool:
        return not wanted or any(name == one if exact else name.startswith(one) for one in wanted)

    return [name for name in names if (matches(name) != inverted if wanted else True)]
