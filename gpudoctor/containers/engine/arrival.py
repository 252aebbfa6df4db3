"""Checks that a container really has a GPU: some engines accept the request, provide none and report no error."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.engine import guard
from gpudoctor.containers.engine.client import Engine
from gpudoctor.errors import WorkError

FIRST_SECONDS, POLL_SECONDS, LOOK_SECONDS = 0.02, 0.1, 10.0
MOST_LOOKS = 600  # at an existing container: its creation may take long
NOT_YET = re.compile(
    r"is\ not\ running | not\ in\ running\ state | can\ only\ create\ exec\ sessions\ on\ running | is\ restarting",
    re.IGNORECASE | re.VERBOSE,
)
# NVIDIA's entrypoint looks for the same. Jetson and WSL2 have other nodes.
SCRIPT = """
device= library=
for node in /dev/nvidiactl /dev/dxg /dev/nvgpu /dev/nvhost-gpu; do [ -e "$node" ] && device=yes; done
IFS=:
for folder in $LD_LIBRARY_PATH /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/lib /usr/local/nvidia/lib64 \
  /usr/lib/wsl/lib; do [ -e "$folder/libcuda.so.1" ] && library=yes; done
if [ -z "$library" ]; then
  case $(ldconfig -p 2>/dev/null || /sbin/ldconfig -p 2>/dev/null) in *libcuda.so.1*) library=yes ;; esac
fi
echo "gpudoctor device=$device library=$library"
"""
SHOWN = re.compile(r"^gpudoctor device=(?P<device>yes)? library=(?P<library>yes)?$", re.MULTILINE)
PARTS = {"device": "device node", "library": "libcuda.so.1"}


class Look(threading.Thread):
    """Looks once, as soon as the container runs; reports a missing GPU through `tell`. has_looked: the check succeeded."""

    def __init__(self, engine: Engine, cidfile: Path, tell: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self._engine = engine
        self._cidfile = cidfile
        self._tell = tell
        self._over = threading.Event()
        self.has_looked = False

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        while not (container := guard.read(self._cidfile)):
            if self._over.wait(FIRST_SECONDS):
                return
        for _ in range(MOST_LOOKS):
            if self._over.wait(POLL_SECONDS) or self._looked(container):
                return

    def _looked(self, container: str) -> bool:
        try:
            done = engines.run(self._engine.argv("exec", container, "sh", "-c", SCRIPT), LOOK_SECONDS)
        except WorkError:
            return True
        if found := SHOWN.search(done.stdout):
            self.has_looked = True
            missing = [what for name, what in PARTS.items() if not found[name]]
            if missing:
                self._tell(f"Warning: a GPU was requested, but the container has no {' and no '.join(missing)}")
            return True
        return not NOT_YET.search(done.stderr)  # without a shell the check is not possible
