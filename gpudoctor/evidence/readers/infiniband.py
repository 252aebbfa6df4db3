"""`ibstat`, `ibstatus`, `ibv_devinfo`, `ibdev2netdev` and `rdma link`: the ports of RDMA adapters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpudoctor.evidence.reader import Reader
from gpudoctor.model import Reply

FOLDER = "/sys/class/infiniband"
_STATES = {
    "down": "DOWN",
    "port_down": "DOWN",
    "init": "INIT",
    "initializing": "INIT",
    "port_init": "INIT",
    "armed": "ARMED",
    "active": "ACTIVE",
    "port_active": "ACTIVE",
    "up": "ACTIVE",
}
_DEVICE = re.compile(
    r"""
    ^\s*(?:
        CA\ '(?P<ca>[\w-]+)'
        | hca_id:\s+(?P<hca>[\w-]+)
        | Infiniband\ device\ '(?P<sys>[\w-]+)'\ port\ (?P<port>\d+)
    )
    """,
    re.VERBOSE,
)
_PORT = re.compile(r"^\s*(?:Port |port:\s+)(\d+):?\s*$")
_FIELD = re.compile(r"^\s*(state|phys(?:ical)?[_ ]state|link[_ ]layer|rate|CA type):\s+(?:\d+: )?(\w+)", re.IGNORECASE)
_LINK = re.compile(
    r"^link\ (?P<device>[\w-]+)/(?P<port>\d+)\ .*?\bstate\ (?P<state>\w+)(?:\ physical_state\ (?P<physical>\w+))?", re.VERBOSE
)
_NETDEV = re.compile(r"^(?P<device>[\w-]+) port (?P<port>\d+) ==> \S+ \((?P<state>\w+)\)")
_PHYSICAL = {"link_up": "LinkUp", "linkup": "LinkUp", "polling": "Polling", "disabled": "Disabled"}


class Port(NamedTuple):
    """One port, in the kernel's words. rate: gigabits per second; kind: the adapter's type, such as MT4129."""

    device: str
    number: str
    state: str = ""
    physical: str = ""
    layer: str = ""
    rate: int = 0
    kind: str = ""


def read(text: str) -> dict[str, Reply] | None:
    ports = [port for port in _ports(text.splitlines()) if port.state]
    if not ports:
        return None
    folders = {f"{FOLDER}/{port.device}/ports/{port.number}": port for port in ports}
    found = {f"glob:{FOLDER}/*/ports/*/state": Reply("ok", [f"{folder}/state" for folder in folders])}
    for folder, port in folders.items():
        values = (("state", port.state), ("phys_state", port.physical), ("link_layer", port.layer))
        found |= {f"file:{folder}/{name}": Reply("ok", value) for name, value in values}
    rates = {f"{port.device} port {port.number}": [port.rate, port.kind, port.state] for port in ports if port.rate}
    return {**found, "shown-rates": Reply("ok", rates)} if rates else found


def _ports(lines: list[str]) -> Iterator[Port]:
    current = Port("", "")
    for line in lines:
        if match := _LINK.match(line) or _NETDEV.match(line):
            said = match.groupdict()
            physical = _PHYSICAL.get((said.get("physical") or "").lower(), "")
            yield Port(said["device"], said["port"], _state(said["state"]), physical)
        elif match := _DEVICE.match(line):
            yield current
            current = Port(next(filter(None, match.group("ca", "hca", "sys"))), match["port"] or "1")
        elif match := _PORT.match(line):
            yield current
            current = Port(current.device, match[1], kind=current.kind)
        elif match := _FIELD.match(line):
            current = _with(current, match[1].lower().replace("_", " "), match[2])
    yield current


def _with(port: Port, name: str, value: str) -> Port:
    if name == "state":
        return port._replace(state=_state(value))
    if name == "link layer":
        return port._replace(layer=value)
    if name == "rate":
        return port._replace(rate=int(value) if value.isdigit() else 0)
    if name == "ca type":
        return port._replace(kind=value)
    return port._replace(physical=_PHYSICAL.get(value.lower(), value))


def _state(word: str) -> str:
    return _STATES.get(word.lower(), word.upper())


READER = Reader(
    kind="ports of InfiniBand or RoCE",
    anchors=("CA 'mlx", "CA '", "hca_id:", "Infiniband device '", "link mlx", " ==> ", "link rocep", "link bnxt"),
    begins=re.compile(
        r"^\s*(?:CA\ '|hca_id:\s|Infiniband\ device\ '|link\ [\w-]+/\d+\ state\ |[\w-]+\ port\ \d+\ ==>\ )", re.VERBOSE
    ),
    ends=re.compile(r"^(?!\s|CA '|hca_id|Infiniband|link \S+/\d|\S+ port \d+ ==>)\S"),
    read=read,
    most_lines=1000,
)
