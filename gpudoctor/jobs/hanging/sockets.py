"""The sockets of a network namespace: addresses, state, and the other end if it is on this machine."""

from __future__ import annotations

import socket
import struct
from functools import cached_property
from typing import Any

from gpudoctor.jobs.hanging.proc import Proc

MOST_BYTES = 4 << 20
STATES = (
    *("", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK"),
    *("LISTEN", "CLOSING"),
)


class Sockets:
    """pid: a process in the network namespace."""

    def __init__(self, proc: Proc, pid: int) -> None:
        self._proc = proc
        self._pid = pid

    @cached_property
    def _tables(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for name in ("tcp", "tcp6", "udp", "udp6"):
            for line in self._proc.text(self._pid, f"net/{name}", MOST_BYTES).splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and fields[9] != "0":
                    waiting, unread = (int(part, 16) for part in fields[4].split(":"))
                    state = int(fields[3], 16)
                    found[int(fields[9])] = {
                        "protocol": name,
                        "local": address(fields[1]),
                        "remote": address(fields[2]),
                        "state": STATES[state] if state < len(STATES) and name.startswith("tcp") else "",
                        "unsent_bytes": waiting,
                        "unread_bytes": unread,
                    }
        for line in self._proc.text(self._pid, "net/unix", MOST_BYTES).splitlines()[1:]:
            fields = line.split(None, 7)
            if len(fields) > 6:
                found[int(fields[6])] = {
                    "protocol": "unix",
                    "local": fields[7] if len(fields) > 7 else "",
                    "remote": "",
                    "state": "",
                }
        return found

    @cached_property
    def _by_ends(self) -> dict[tuple[str, str], int]:
        return {(held["local"], held["remote"]): inode for inode, held in self._tables.items() if held["protocol"] != "unix"}

    def of(self, inode: int) -> dict[str, Any]:
        return self._tables.get(inode, {})

    def peer(self, inode: int) -> int | None:
        """The inode of the socket at the other end, if it is on this machine."""
        held = self._tables.get(inode)
        return self._by_ends.get((held["remote"], held["local"])) if held and held.get("remote") else None

    def listening(self, port: int) -> list[int]:
        """The inodes of the sockets that listen on a port."""
        return [inode for inode, held in self._tables.items() if held["state"] == "LISTEN" and held["local"].endswith(f":{port}")]


def address(text: str) -> str:
    """`0100007F:6D7C` is 127.0.0.1:28028; an IPv4 address in IPv6 is shown as IPv4.

    >>> address("0100007F:6D7C"), address("0000000000000000FFFF00000100007F:0050")
    ('127.0.0.1:28028', '127.0.0.1:80')
    """
    numbers, _, port = text.partition(":")
    data = b"".join(struct.pack("=I", int(numbers[at : at + 8], 16)) for at in range(0, len(numbers), 8))
    if len(data) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, data)}:{int(port, 16)}"
    if data.startswith(b"\0" * 10 + b"\xff\xff"):
        return f"{socket.inet_ntop(socket.AF_INET, data[12:])}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, data)}]:{int(port, 16)}"
