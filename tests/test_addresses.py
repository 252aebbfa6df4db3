"""Interfaces as NCCL and Gloo choose them."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from each import each

from gpudoctor.facts.replies import Replies
from gpudoctor.facts.sockets import Sockets
from gpudoctor.model import Reply
from gpudoctor.worker.probes import addresses
from gpudoctor.worker.probes.machine import Machine

MANY = ("lo", "docker0", "eth0", "eth1", "ib0", "virbr0")


def sockets(*names: str, six: tuple[str, ...] = (), down: tuple[str, ...] = ()) -> Sockets:
    rows = [
        {"name": name, "running": name not in down, "loopback": name == "lo", "ipv4": name not in six, "ipv6": True}
        for name in names
    ]
    return Sockets(Replies({"socket-interfaces": Reply("ok", rows)}))


@each(
    ["there", "setting", "expected"],
    [
        (sockets(*MANY), None, ("ib0",)),
        (sockets(*MANY, down=("ib0",)), None, ("eth0", "eth1")),
        (sockets("lo", "docker0"), None, ("docker0",)),
        (sockets("lo", "virbr0"), None, ("lo",)),
        (sockets("lo", "eth0", "eth1", six=("eth0",)), None, ("eth1", "eth0")),  # those with IPv4 first
        (sockets(*MANY), "eth", ("eth0", "eth1")),
        (sockets(*MANY), "=eth0", ("eth0",)),
        (sockets(*MANY), "^=eth0,lo", ("docker0", "eth1", "ib0", "virbr0")),
        (sockets(*MANY), "^docker,lo,ib,virbr", ("eth0", "eth1")),
        (sockets(*MANY), "en", ()),
        (sockets(*MANY), "e", ("ib0",)),  # NCCL ignores values of one character
    ],
)
def test_the_rule_of_nccl(there: Sockets, setting: str | None, expected: tuple[str, ...]) -> None:
    assert there.chosen_by_nccl(setting) == expected


def own(monkeypatch: pytest.MonkeyPatch, *found: str) -> dict[str, str]:
    def resolved(*_: Any) -> list[Any]:
        if not found:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    answer: dict[str, str] = dict(addresses.ask(Machine()))["own-address"].value
    return answer


def test_where_the_own_name_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own(monkeypatch) == {"kind": "unresolved", "interface": ""}
    assert own(monkeypatch, "203.0.113.1")["kind"] == "foreign"  # of a documentation network: no interface has it
    assert own(monkeypatch, "203.0.113.1", "127.0.0.1") == {"kind": "loopback", "interface": "lo"}


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answered.wait())
    monkeypatch.setattr(addresses, "RESOLVER_SECONDS", 0.01)
    try:
        assert dict(addresses.ask(Machine()))["own-address"].status == "timeout"
    finally:
        answered.set()


def test_the_interfaces_of_this_machine() -> None:
    found = {row["name"]: row for row in dict(addresses.ask(Machine()))["socket-interfaces"].value}
    assert list(found) == [name for _, name in socket.if_nameindex()]
    assert (found["lo"]["loopback"], found["lo"]["running"], found["lo"]["ipv4"]) == (True, True, True)


def test_nothing_is_said_of_a_simulated_machine(tmp_path: Any) -> None:
    assert {reply.status for _, reply in addresses.ask(Machine(str(tmp_path)))} == {"missing"}
