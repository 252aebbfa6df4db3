"""DCGM's profiling metrics, for GPUs without GPM, where its daemon runs: `dcgmi dmon` prints them line by line.

https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html#profiling-metrics
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from gpudoctor.jobs.watching import tree
from gpudoctor.jobs.watching.gpus import Gpu

DAEMON = "nv-hostengine"
# DCGM's field -> our name, and what makes it our unit: percent, or MiB/s.
FIELDS = {
    1001: ("graphics", 100.0),
    1002: ("sm", 100.0),
    1003: ("occupancy", 100.0),
    1004: ("tensor", 100.0),
    1005: ("dram", 100.0),
    1006: ("fp64", 100.0),
    1007: ("fp32", 100.0),
    1008: ("fp16", 100.0),
    1009: ("pcie_tx_mib_s", 1 / (1 << 20)),
    1010: ("pcie_rx_mib_s", 1 / (1 << 20)),
}
MILLISECONDS = 1000


class Dcgm:
    """why_not: the reason why there are no metrics from DCGM; "" if they come, or if no GPU needs them."""

    def __init__(self, wanting: Sequence[Gpu]) -> None:
        self.why_not = ""
        self._latest: dict[int, dict[str, float]] = {}
        self._rest = b""
        self._process: subprocess.Popen[bytes] | None = None
        if not wanting:
            return
        program = shutil.which("dcgmi")
        if not program:
            self.why_not = "DCGM is not installed"
        elif not any(stat.name == DAEMON for stat in tree.every().values()):
            self.why_not = f"DCGM's daemon {DAEMON} does not run"
        else:
            self._start(program, wanting)

    def _start(self, program: str, wanting: Sequence[Gpu]) -> None:
        fields, ids = (",".join(map(str, values)) for values in (FIELDS, (gpu.index for gpu in wanting)))
        argv = [program, "dmon", "-e", fields, "-i", ids, "-d", str(MILLISECONDS)]
        try:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as failure:
            self.why_not = f"dcgmi cannot be run: {failure.strerror}"
            return
        assert self._process.stdout
        os.set_blocking(self._process.stdout.fileno(), False)

    def read(self, gpu: Gpu) -> dict[str, float]:
        """The newest line about this GPU, once."""
        self._take()
        found = self._latest.pop(gpu.index, {})
        return gpu.keep(found) if found else {}

    def _take(self) -> None:
        if not self._process or not self._process.stdout:
            return
        try:
            data = os.read(self._process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self.why_not = self.why_not or f"dcgmi dmon ended: {self._rest.decode('utf-8', 'replace').strip()[-200:]}"
            self._process.wait()
            self._process = None
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line.decode("utf-8", "replace").split())

    def _line(self, words: list[str]) -> None:
        """`GPU 0   0.987  0.912 …`; N/A where a field is not supported."""
        if words[:1] == ["Error"]:
            self.why_not = " ".join(words)[:200]
        if len(words) != len(FIELDS) + 2 or words[0] != "GPU" or not words[1].isdigit():
            return
        values = {}
        for (name, factor), word in zip(FIELDS.values(), words[2:], strict=True):
            try:
                values[name] = float(word) * factor
            except ValueError:
                continue
        self._latest[int(words[1])] = values
