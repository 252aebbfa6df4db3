"""Docker daemons of a test's own, beside the machine's."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lab_images

START_SECONDS = 120.0


@dataclass(frozen=True)
class Daemon:
    """A dockerd that is up. environment: what a command needs to reach this one."""

    folder: Path
    environment: Mapping[str, str] = field(repr=False)
    loaded: set[str] = field(default_factory=set, repr=False)

    def docker(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        command = ["docker", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=self.full, **options)  # type: ignore[call-overload, no-any-return]

    @property
    def full(self) -> dict[str, str]:
        """The whole environment of a command, ours and this daemon's."""
        return {**os.environ, **self.environment}

    def load(self, reference: str) -> str:
        """Brings an image of the machine's own daemon here, once; gives its reference back."""
        if reference not in self.loaded:
            with subprocess.Popen(["docker", "save", reference], stdout=subprocess.PIPE) as saved:
                subprocess.run(["docker", "load"], stdin=saved.stdout, env=self.full, check=True, capture_output=True)
            self.loaded.add(reference)
        return reference

    def empty(self) -> str:
        """An image with one folder, for what fails before a program in it would run."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as files:
            folder = tarfile.TarInfo("folder")
            folder.type = tarfile.DIRTYPE
            files.addfile(folder)
        command = ["docker", "import", "-", "gpudoctor-test:empty"]
        subprocess.run(command, input=archive.getvalue(), env=self.full, check=True, capture_output=True)
        return command[-1]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


@contextmanager
def dockerd(
    options: Sequence[str] = (), path: Sequence[Path] = (), settings: Mapping[str, object] | None = None
) -> Iterator[Daemon]:
    """A daemon with storage, socket and containerd of its own, and no network.

    path: folders where programs are looked for first, dockerd and docker among them. settings: its daemon.json.
    """
    folder = Path(tempfile.mkdtemp(prefix="lab-"))  # a socket's path must be short
    directories = [str(part) for part in path] + [os.environ["PATH"]]
    environment = {"DOCKER_HOST": f"unix://{folder}/docker.sock", "PATH": os.pathsep.join(directories)}
    daemon = Daemon(folder, environment)
    command = [
        # A daemon without a bridge removes docker0, which is another daemon's, from its network.
        *("setpriv", "--pdeathsig", "TERM", "unshare", "--net", "dockerd"),
        *(f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"),
        *(f"--host=unix://{folder}/docker.sock", "--bridge=none", "--iptables=false", f"--config-file={folder}/daemon.json"),
        *options,
    ]
    (folder / "daemon.json").write_text(json.dumps(settings or {}))
    with lab_images.locked("dockerd"), (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=daemon.full, start_new_session=True
        )
    try:
        _wait(daemon, process)
        yield daemon
    finally:
        _stop(daemon, process)


def _wait(daemon: Daemon, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while daemon.docker("version").returncode:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{process.args!r} did not start\n{daemon.log[-3000:]}")
        time.sleep(0.1)


def _stop(daemon: Daemon, process: subprocess.Popen[bytes]) -> None:
    containers = daemon.docker("ps", "--all", "--quiet").stdout.split()
    if containers:
        daemon.docker("rm", "--force", "--volumes", *containers)
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for mount in Path("/proc/self/mounts").read_text().splitlines()[::-1]:
        if (where := mount.split()[1]).startswith(str(daemon.folder)):
            subprocess.run(["umount", "--lazy", where], capture_output=True)
    shutil.rmtree(daemon.folder, ignore_errors=True)
