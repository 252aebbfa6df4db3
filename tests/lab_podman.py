"""Podman with storage and settings of its own, on the fake machine, where it finds the CDI specification of its GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab_gpus import Machine

# No network, and the limits that are there: what works also in a machine that is a container itself.
CONTAINERS = """\
[containers]
netns = "none"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
log_driver = "k8s-file"
"""
# As options, since only they reach the Podman that cleans up when a container has ended.
PROGRAM = """\
#!/bin/sh
exec {podman} --root {folder}/storage --runroot {folder}/run --tmpdir {folder}/tmp --events-backend file \\
  --cgroup-manager cgroupfs --runtime {runc} "$@"
"""


@dataclass(frozen=True)
class Podman:
    """environment: what makes `podman` this one."""

    folder: Path
    machine: Machine = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    loaded: set[str] = field(default_factory=set, repr=False)

    @property
    def full(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    @property
    def specification(self) -> str:
        return self.machine.cdi.read_text()

    def argv(self, *command: str, files: Mapping[str, str] | None = None) -> list[str]:
        """A command as it runs on the machine; files as for Machine.argv, by default the specification in /etc/cdi."""
        found = {"/etc/cdi/nvidia.yaml": self.specification} if files is None else files
        return self.machine.argv(*command, files=found)

    def run(self, *arguments: str, files: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = self.argv("podman", *arguments, files=files)
        return subprocess.run(command, capture_output=True, text=True, env=self.full)

    def load(self, reference: str) -> str:
        """Brings an image of the machine's Docker here, once; gives its reference back, which is short and so the local one."""
        if reference not in self.loaded:
            with subprocess.Popen(["docker", "save", reference], stdout=subprocess.PIPE) as saved:
                subprocess.run(["podman", "load"], stdin=saved.stdout, env=self.full, check=True, capture_output=True)
            self.loaded.add(reference)
        return reference

    def _podman(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["podman", *arguments], capture_output=True, text=True, env=self.full)

    def close(self) -> None:
        self._podman("rm", "--all", "--force", "--volumes")
        self._podman("image", "rm", "--all", "--force")
        subprocess.run(["umount", "--recursive", "--lazy", self.folder / "storage/overlay"], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def podman(machine: Machine) -> Iterator[Podman]:
    folder = Path(tempfile.mkdtemp(prefix="lab-"))
    (folder / "containers.conf").write_text(CONTAINERS)
    program = folder / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(podman=shutil.which("podman"), runc=shutil.which("runc"), folder=folder))
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "CONTAINERS_CONF": str(folder / "containers.conf")}
    own = Podman(folder, machine, environment)
    try:
        yield own
    finally:
        own.close()
