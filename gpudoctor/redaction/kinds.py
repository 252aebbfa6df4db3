"""The kinds of values that are replaced: their names for --keep, and in a summary."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """words: the token prefixes of this kind: "user" makes user-1, user-2 …"""

    one: str
    many: str
    words: tuple[str, ...]


KINDS = {
    "secrets": Kind("secret", "secrets", ("secret",)),
    "environment": Kind("variable", "variables", ("environment",)),
    "users": Kind("user", "users", ("user", "group")),
    "hostname": Kind("host", "hosts", ("host",)),
    "domains": Kind("domain", "domains", ("domain",)),
    "paths": Kind("folder or file", "folders and files", ("dir", "file")),
    "addresses": Kind("address", "addresses", ("ip",)),
    "hardware-addresses": Kind("hardware address", "hardware addresses", ("mac", "guid", "lid")),
    "gpu-uuids": Kind("GPU UUID", "GPU UUIDs", ("gpu",)),
    "serials": Kind("serial number or id", "serial numbers and ids", ("serial", "uuid", "volume")),
    "containers": Kind("container or image", "containers and images", ("container", "image")),
    "pods": Kind("pod or namespace", "pods and namespaces", ("pod", "namespace")),
    "jobs": Kind("job or account", "jobs and accounts", ("job", "account")),
    "processes": Kind("command line", "command lines", ("arguments",)),
    "interfaces": Kind("network interface", "network interfaces", ("iface",)),
    "words": Kind("word of yours", "words of yours", ("word",)),
}
KIND_OF = {word: name for name, kind in KINDS.items() for word in kind.words}
KEPT_ON_REQUEST = tuple(name for name in KINDS if name not in ("secrets", "words"))
DROPPED = ("secret", "environment", "arguments")  # removed without a token


def counted(name: str, count: int) -> str:
    """2 users."""
    kind = KINDS[name]
    return f"{count} {kind.one if count == 1 else kind.many}"
