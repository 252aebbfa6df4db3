"""What the network interfaces have that NCCL and Gloo choose by, and where this machine's own name leads. No address is kept."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
import subprocess
import threading
from typing import Any, Dict, Iterator, List, Optional

from gpudoctor.worker.probes.machine import Answer, Machine

FLAGS, ADDRESS = 0x8913, 0x8915  # SIOCGIFFLAGS and SIOCGIFADDR of linux/sockios.h
LOOPBACK, RUNNING = 0x8, 0x40  # linux/if.h
IPV6 = "/proc/net/if_inet6"
RESOLVER_SECONDS = 2.0


def ask(machine: Machine) -> Iterator[Answer]:
    yield machine.ask("socket-interfaces", lambda: _interfaces(machine))
    yield machine.ask("own-address", lambda: _own(machine))


def _interfaces(machine: Machine) -> List[Dict[str, Any]]:
    """In the order of the kernel, as getifaddrs returns them."""
    _only_here(machine)
    six = _six(machine)
    return [_interface(name, name in six.values()) for _, name in socket.if_nameindex()]


def _interface(name: str, ipv6: bool) -> Dict[str, Any]:
    raw = _ioctl(FLAGS, name)
    flags = struct.unpack("H", raw[16:18])[0] if raw else 0
    return {
        "name": name,
        "running": bool(flags & RUNNING),
        "loopback": bool(flags & LOOPBACK),
        "ipv4": bool(_ioctl(ADDRESS, name)),
        "ipv6": ipv6,
    }


def _ioctl(request: int, name: str) -> bytes:
    """Empty if the interface has no such thing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            return fcntl.ioctl(any_socket.fileno(), request, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return b""


def _own(machine: Machine) -> Dict[str, str]:
    """kind: of the first address of this machine's name that a program can bind to, as PyTorch looks for it; interface: its own.

    https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: createDefaultDevice
    """
    _only_here(machine)
    found = _resolved(socket.gethostname())
    if found is None:
        return {"kind": "unresolved", "interface": ""}
    for family, kind, protocol, _, address in found:
        if _binds(family, kind, protocol, address):
            name = _name_of(str(address[0]).partition("%")[0], machine)
            is_loopback = ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
            return {"kind": "loopback" if is_loopback else "interface", "interface": name}
    return {"kind": "foreign", "interface": ""}


def _resolved(name: str) -> Optional[List[Any]]:
    """None if there is no such name. A name server that does not answer would hold up the probe for longer than it has."""
    answers: List[Optional[List[Any]]] = []

    def resolve() -> None:
        try:
            answers.append(socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM))
        except socket.gaierror:
            answers.append(None)

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(RESOLVER_SECONDS)
    if not answers:
        raise subprocess.TimeoutExpired("getaddrinfo", RESOLVER_SECONDS)
    return answers[0]


def _binds(family: int, kind: int, protocol: int, address: Any) -> bool:
    try:
        with socket.socket(family, kind, protocol) as tried:
            tried.bind(address)
    except OSError:
        return False
    return True


def _name_of(address: str, machine: Machine) -> str:
    """ "" for a second address of an interface, which the kernel's old interface does not list."""
    for _, name in socket.if_nameindex():
        raw = _ioctl(ADDRESS, name)
        if raw and socket.inet_ntoa(raw[20:24]) == address:
            return name
    return _six(machine).get(address, "")


def _six(machine: Machine) -> Dict[str, str]:
    """IPv6 address -> its interface."""
    text = machine.call(lambda: machine.read(IPV6)).value or ""
    rows = [line.split() for line in text.splitlines()]
    return {str(ipaddress.IPv6Address(int(row[0], 16))): row[5] for row in rows if len(row) == 6}


def _only_here(machine: Machine) -> None:
    if machine.root != "/":
        raise FileNotFoundError("interfaces are only asked under the root /")
