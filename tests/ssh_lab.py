"""Nodes that are real: an sshd for each, with a host key of its own, on a loopback address or in a network namespace."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

LONGEST_SECONDS = 30
_SERVER = """\
Port 22022
ListenAddress {address}
HostKey {key}
AuthorizedKeysFile {folder}/user.pub
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
PidFile none
MaxStartups 200
"""
_CLIENT = """\
Host *
  Port 22022
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""


def is_missing() -> str:
    """Why there can be no such nodes here; "" if there can."""
    absent = [name for name in ("sshd", "ssh", "ssh-keygen") if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if absent:
        return f"not installed: {', '.join(absent)} (apt install openssh-server)"
    return "a login of another process needs root" if os.geteuid() else ""


@dataclass
class Lab:
    """options: for ssh. servers: name -> its sshd."""

    options: str
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def cpu_seconds(self) -> float:
        """What all that ran in sessions of these nodes has used, and has ended."""
        ticks = 0
        for server in self.servers.values():
            words = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, words[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def nodes(
    folder: Path,
    addresses: Mapping[str, str],
    namespaces: Mapping[str, str] | None = None,
    more: str = "",
) -> Iterator[Lab]:
    """addresses: name -> address. namespaces: name -> the network namespace of its sshd. more: lines of each sshd_config."""
    folder.chmod(0o700)
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert server
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("user", *addresses):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    known, client = "", ""
    for name, address in addresses.items():
        key = (folder / f"{name}.pub").read_text().split()[1]
        known += f"{name} ssh-ed25519 {key}\n"
        client += f"Host {name}\n  HostName {address}\n  HostKeyAlias {name}\n"
    (folder / "known_hosts").write_text(known)
    (folder / "config").write_text(client + _CLIENT.format(folder=folder))
    lab = Lab(f"-F {folder}/config")
    try:
        for name, address in addresses.items():
            config = folder / f"{name}.sshd"
            config.write_text(_SERVER.format(address=address, key=folder / name, folder=folder) + more)
            inside = ["ip", "netns", "exec", namespaces[name]] if namespaces else []
            with (folder / f"{name}.log").open("wb") as log:
                lab.servers[name] = subprocess.Popen([*inside, server, "-D", "-e", "-f", str(config)], stderr=log)
        for address in addresses.values():
            _wait_for(address)
        yield lab
    finally:
        for process in lab.servers.values():
            process.terminate()
        for process in lab.servers.values():
            process.wait()


def _wait_for(address: str) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    while True:
        with socket.socket() as client:
            if client.connect_ex((address, 22022)) == 0:
                return
        assert time.monotonic() < end, f"the sshd at {address} does not start"
        time.sleep(0.02)


NETWORK = "10.77.85"


@contextmanager
def namespaces(names: Sequence[str], prefix: str, network: str = NETWORK) -> Iterator[dict[str, str]]:
    """Name -> address, each in a network namespace PREFIX-NAME of its own, behind one switch; this machine is .1. Needs root.

    The switch has a namespace, too: rules of this machine's firewall, such as Docker's, would stop what crosses a bridge of it.
    """

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    switch = f"{prefix}-switch"
    made = []
    try:
        for space in (switch, *(f"{prefix}-{name}" for name in names)):
            ip("netns", "add", space)
            made.append(space)
            ip("-n", space, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        ip("link", "add", prefix, "type", "veth", "peer", "name", "up0", "netns", switch)
        ip("-n", switch, "link", "set", "up0", "master", "br0", "up")
        ip("addr", "add", f"{network}.1/24", "dev", prefix)
        ip("link", "set", prefix, "up")
        addresses = {}
        for number, name in enumerate(names):
            space, port, addresses[name] = f"{prefix}-{name}", f"port{number}", f"{network}.{11 + number}"
            ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switch)
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            ip("-n", space, "addr", "add", f"{addresses[name]}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
        yield addresses
    finally:
        for space in made:
            found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split()
            for pid in found:
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
