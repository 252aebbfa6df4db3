"""HTTP to a Docker daemon: no HTTP package is certain to be installed in the target."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import time
from typing import Any, Dict
from urllib.parse import urlsplit

from gpudoctor.worker.captured import MOST_BYTES
from gpudoctor.worker.probes.machine import Machine


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("docker", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def connection_to(machine: Machine, endpoint: str, seconds: float) -> http.client.HTTPConnection:
    url = urlsplit(endpoint)
    if url.scheme == "unix":
        return UnixConnection(machine.path(url.path), seconds)
    return http.client.HTTPConnection(url.hostname or "", url.port or 2375, timeout=seconds)


def get(machine: Machine, endpoint: str, path: str, deadline: float) -> Dict[str, Any]:
    """The answer's JSON; OSError for any status other than 200. deadline: in seconds of the monotonic clock."""
    connection = connection_to(machine, endpoint, max(0.05, deadline - time.monotonic()))
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status != 200:  # a proxy in front of the socket can refuse
            number = errno.EACCES if response.status in (401, 403) else errno.EPROTO
            raise OSError(number, f"GET {path}: HTTP {response.status} {response.reason}")
        return dict(json.loads(response.read(MOST_BYTES)))
    finally:
        connection.close()
