"""A registry that answers a byte at a time does not keep gpudoctor waiting."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import HOPELESS_SECONDS

from gpudoctor.containers.images import transport
from gpudoctor.errors import WorkError

pytestmark = pytest.mark.slow


def drip(listening: socket.socket, asked: threading.Event) -> None:
    """Headers without an end, a byte at a time."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        connection.recv(1 << 16)
        asked.set()
        try:
            for byte in itertools.chain(b"HTTP/1.1 200 OK\r\n", itertools.cycle(b"a")):
                connection.send(bytes([byte]))
                time.sleep(0.05)
        except OSError:
            connection.close()


@pytest.fixture
def dripping() -> Iterator[tuple[str, threading.Event]]:
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=drip, args=(listening, asked), daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", asked


def test_the_deadline_is_for_the_whole_request(monkeypatch: pytest.MonkeyPatch, dripping: tuple[str, threading.Event]) -> None:
    monkeypatch.setattr(transport, "WHOLE_SECONDS", 0.5)
    registry = transport.Registry.of(dripping[0], None)
    registry.scheme = "http"
    with pytest.raises(WorkError, match="it timed out"):
        registry.ask("GET", "/v2/")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_ends_it(tmp_path: Path, dripping: tuple[str, threading.Event], number: int, code: int) -> None:
    host, asked = dripping
    line = [sys.executable, "-m", "gpudoctor", "images", "lock", "--file", str(tmp_path / "lock"), f"{host}/a/b:1"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, env={**os.environ, "PATH": str(tmp_path)}) as running:
        assert asked.wait(HOPELESS_SECONDS)
        running.send_signal(number)
        assert running.wait(HOPELESS_SECONDS) == code
