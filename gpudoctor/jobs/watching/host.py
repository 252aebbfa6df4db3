"""What the host does meanwhile: CPUs, memory, pressure, disks, networks, and the control group of the job."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from gpudoctor.jobs.watching.timeline import Means
from gpudoctor.jobs.watching.tree import read

CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
SECTOR_MIB = 512 / (1 << 20)
DISK = re.compile(r"(?:[shv]d[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+|dm-\d+|md\d+)")
NO_NETWORK = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel", "cali")
RDMA = "sys/class/infiniband/*/ports/*"


class Host:
    """Counters at the beginning and at the last look; what lies between is the answer."""

    def __init__(self) -> None:
        self.means = Means()
        self._first = self._before = self._counters()
        self._first_at = self._at = time.monotonic()
        self._ports = {path: read(f"{path}/rate", 64) for path in map(str, Path("/").glob(RDMA))}
        self._first_traffic = self._traffic()
        self._first_memory = memory()

    def look(self) -> dict[str, float]:
        """Rates since the last look."""
        now, counters = time.monotonic(), self._counters()
        seconds, before = now - self._at, self._before
        if seconds <= 0:
            return {}
        self._at, self._before = now, counters
        values = {**_shares(before["cpu"], counters["cpu"]), **_pressure(before["stall"], counters["stall"], seconds)}
        disks = _disks(before["disks"], counters["disks"], seconds).values()
        values["read_mib_s"] = sum(row["read_mib_s"] for row in disks)
        values["disk_busy"] = max((row["busy"] for row in disks), default=0.0)
        values["available_mib"] = memory().get("MemAvailable", 0.0)
        self.means.add(values)
        return values

    def as_value(self) -> dict[str, Any]:
        now, after = time.monotonic(), self._counters()
        seconds = max(now - self._first_at, 1e-9)
        held = memory()
        return {
            "cpus": os.cpu_count(),
            "load": os.getloadavg()[0],
            "readings": self.means.as_value(),
            "memory_mib": held.get("MemTotal"),
            "first_available_mib": self._first_memory.get("MemAvailable"),
            "available_mib": held.get("MemAvailable"),
            "swap_mib_s": {
                name: round((after["swap"].get(name, 0) - self._first["swap"].get(name, 0)) * 4096 / (1 << 20) / seconds, 2)
                for name in ("pswpin", "pswpout")
            },
            "disks": _busiest(_disks(self._first["disks"], after["disks"], seconds)),
            "network": _networks(self._first_traffic, self._traffic(), seconds, self._ports),
        }

    def _counters(self) -> dict[str, Any]:
        first = read("/proc/stat", 4096).partition("\n")[0].split()[1:]
        return {
            "cpu": dict(zip(CPU, map(int, first), strict=False)),
            "stall": {kind: read(f"/proc/pressure/{kind}", 256) for kind in ("cpu", "io", "memory")},
            "disks": _disk_counters(),
            "swap": _swapped(),
        }

    def _traffic(self) -> dict[str, tuple[int, int]]:
        """Interface or RDMA port -> bytes in and out."""
        found = {}
        for line in read("/proc/net/dev").splitlines()[2:]:
            name, _, rest = line.partition(":")
            fields = rest.split()
            if len(fields) > 8 and not name.strip().startswith(NO_NETWORK):
                found[name.strip()] = int(fields[0]), int(fields[8])
        for path in self._ports:
            received, sent = (read(f"{path}/counters/port_{way}_data", 64).strip() for way in ("rcv", "xmit"))
            if received.isdigit() and sent.isdigit():  # in units of four bytes
                found[path] = 4 * int(received), 4 * int(sent)
        return found


def memory() -> dict[str, float]:
    """/proc/meminfo in MiB."""
    rows = (line.partition(":") for line in read("/proc/meminfo", 4096).splitlines())
    return {name: int(value.split()[0]) / 1024 for name, _, value in rows if value}


def _swapped() -> dict[str, int]:
    rows = (line.split() for line in read("/proc/vmstat").splitlines() if line.startswith("pswp"))
    return {name: int(value) for name, value in rows}


def _shares(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
    all = sum(after.values()) - sum(before.values())
    if all <= 0 or not after:
        return {}
    idle, waiting = ((after[name] - before[name]) / all for name in ("idle", "iowait"))
    return {"cpu_used": max(0.0, 1 - idle - waiting), "iowait": max(0.0, waiting)}


def _pressure(before: dict[str, str], after: dict[str, str], seconds: float) -> dict[str, float]:
    """The share of the time in which some task was stalled (PSI)."""
    found = {}
    for kind, text in after.items():
        totals = [re.search(r"some .*total=(\d+)", each) for each in (before[kind], text)]
        if totals[0] and totals[1]:
            found[f"stalled_{kind}"] = (int(totals[1][1]) - int(totals[0][1])) / 1e6 / seconds
    return found


def _disk_counters() -> dict[str, tuple[int, ...]]:
    """Disk -> reads, sectors read, milliseconds reading, sectors written, milliseconds busy."""
    found = {}
    for line in read("/proc/diskstats").splitlines():
        fields = line.split()
        if len(fields) > 12 and DISK.fullmatch(fields[2]):
            found[fields[2]] = tuple(int(fields[at]) for at in (3, 5, 6, 9, 12))
    return found


def _disks(before: dict[str, Any], after: dict[str, Any], seconds: float) -> dict[str, dict[str, float]]:
    rows = {}
    for name in before.keys() & after.keys():
        reads, sectors, waited, written, busy = (now - then for now, then in zip(after[name], before[name], strict=True))
        rows[name] = {
            "read_mib_s": round(sectors * SECTOR_MIB / seconds, 2),
            "write_mib_s": round(written * SECTOR_MIB / seconds, 2),
            "reads_s": round(reads / seconds, 1),
            "read_ms": round(waited / reads, 2) if reads else 0.0,
            "busy": round(min(1.0, busy / 1000 / seconds), 3),
        }
    return rows


def _busiest(disks: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return dict(sorted(disks.items(), key=lambda item: -item[1]["busy"])[:6])


def _networks(before: dict[str, Any], after: dict[str, Any], seconds: float, ports: dict[str, str]) -> dict[str, dict[str, Any]]:
    rows = {}
    for name in before.keys() & after.keys():
        received, sent = (
            round((now - then) / (1 << 20) / seconds, 2) for now, then in zip(after[name], before[name], strict=True)
        )
        speed = _rdma_speed(ports[name]) if name in ports else _speed(name)
        short = "/".join(name.split("/")[-3::2]) if name in ports else name
        rows[short] = {"rx_mib_s": received, "tx_mib_s": sent, "most_mib_s": speed}
    return dict(sorted(rows.items(), key=lambda item: -item[1]["rx_mib_s"] - item[1]["tx_mib_s"])[:8])


def _speed(name: str) -> float | None:
    """Of an interface in MiB/s; None if it does not say."""
    text = read(f"/sys/class/net/{name}/speed", 32).strip()
    return int(text) * 1e6 / 8 / (1 << 20) if text.isdigit() and int(text) else None


def _rdma_speed(rate: str) -> float | None:
    found = re.match(r"([\d.]+) Gb/sec", rate)
    return float(found[1]) * 1e9 / 8 / (1 << 20) if found else None
