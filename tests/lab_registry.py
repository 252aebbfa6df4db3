"""A registry of a test's own: Debian's docker-registry, with what it holds in a temporary folder."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import yaml

START_SECONDS = 120.0
TRIES = 3
# What a registry with a login asks for: user lab, password lab.
LOGIN = "lab:$2b$05$uU6AuCFVMU8TaXK/FNl3hO7ShmEyTZf/2ZsSb1Y6oegq2RtuMQBIO\n"

Started = TypeVar("Started")


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as free:
        free.bind((host, 0))
        return int(free.getsockname()[1])


def tried(start: Callable[[], Started]) -> Started:
    """Tried again where that fails: somebody else may take a port between its choice and its use."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(RuntimeError):
            return start()
    return start()


def wait_for_start(process: subprocess.Popen[bytes], answers: Callable[[], bool], log: Path) -> None:
    """Of a docker-registry; RuntimeError where it has ended, also if somebody else answers at its port."""
    end = time.monotonic() + START_SECONDS
    while True:
        time.sleep(0.05)
        has_answered = answers()
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            process.wait()
            raise RuntimeError(f"docker-registry did not start\n{log.read_text()[-2000:]}")
        if has_answered:
            return


class Registry:
    """host is what a reference begins with: localhost:PORT, which every engine trusts without TLS."""

    def __init__(self, folder: Path, login: bool = False) -> None:
        self.folder = folder
        self.port = free_port()
        self.host = f"localhost:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._configure(login)

    def _configure(self, login: bool) -> None:
        settings = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(self.folder / "data")}, "delete": {"enabled": True}},
            "http": {"addr": f"127.0.0.1:{self.port}"},
        }
        if login:
            (self.folder / "htpasswd").write_text(LOGIN)
            settings["auth"] = {"htpasswd": {"realm": "lab", "path": str(self.folder / "htpasswd")}}
        (self.folder / "config.yml").write_text(yaml.safe_dump(settings))

    def start(self) -> Registry:
        command = ["setpriv", "--pdeathsig", "KILL", "docker-registry", "serve", str(self.folder / "config.yml")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for_start(self._process, self._answers, self.folder / "log")
        return self

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def push(self, image: str, name: str) -> str:
        """Gives an image of the machine's daemon a name of this registry, "nvidia/cuda:12.6.0-base-ubuntu24.04", and pushes it.
        The tag does not stay on this machine.
        """
        reference = f"{self.host}/{name}"
        subprocess.run(["docker", "tag", image, reference], check=True, capture_output=True)
        try:
            subprocess.run(["docker", "push", "--quiet", reference], check=True, capture_output=True)
        finally:
            subprocess.run(["docker", "image", "rm", "--no-prune", reference], check=True, capture_output=True)
        return reference

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/", timeout=2).close()
        except urllib.error.HTTPError as failure:
            failure.close()
            return failure.code == 401
        except OSError:
            return False
        return True


@contextmanager
def registry(login: bool = False) -> Iterator[Registry]:
    """One that is up; login: whether it wants user lab and password lab."""
    folder = Path(tempfile.mkdtemp(prefix="lab-"))
    try:
        started = tried(lambda: Registry(folder, login).start())
        try:
            yield started
        finally:
            started.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
