"""How long a fleet takes, and whether each planted fault is found: `python benchmarks/fleet.py [NODES] [--times N]`.

Makes snapshots of a machine of tests/machines, each with its own serial numbers, temperatures, times and noise in its figures,
plants twelve faults and leaves 5 % of the nodes without an answer. Then `gpudoctor fleet merge` reads them and writes a page.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import machine

from gpudoctor.files import snapshot
from gpudoctor.fleet.model import State
from gpudoctor.fleet.reading import kept
from gpudoctor.model import Reply, Snapshot

BASE = "hgx-h200-x8-measured"
NOISE = 0.015  # of a figure, from one healthy machine to the next
UNREACHABLE = 0.05
Values = dict[str, Any]


class Fault(NamedTuple):
    """nodes: on how many it is planted. found: the kind and id of the item that has to name them. plant: changes an own copy."""

    name: str
    nodes: int
    found: tuple[str, str]
    plant: Callable[[Values, Values], None]


def _of_gpu(gpu: int, **values: Any) -> Callable[[Values, Values], None]:
    def plant(replies: Values, measured: Values) -> None:
        replies[f"nvml:gpu{gpu}"] = Reply("ok", {**replies[f"nvml:gpu{gpu}"].value, **values})

    return plant


def _of_all_gpus(**values: Any) -> Callable[[Values, Values], None]:
    def plant(replies: Values, measured: Values) -> None:
        for gpu in range(8):
            _of_gpu(gpu, **values)(replies, measured)

    return plant


def _older_driver(replies: Values, measured: Values) -> None:
    for question, reply in list(replies.items()):
        raw = msgspec.json.encode(reply)
        if b"580.159.04" in raw and "kernel-log" not in question:
            replies[question] = msgspec.json.decode(raw.replace(b"580.159.04", b"580.95.05"), type=Reply)


def _off_the_bus(replies: Values, measured: Values) -> None:
    address = replies["nvml:gpu3"].value["PciInfo"]["busId"][4:-2].lower()
    log = replies["kernel-log"].value
    line = f"<4>[170111.550187] NVRM: Xid (PCI:{address}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    replies["kernel-log"] = Reply("ok", {**log, "lines": [*log["lines"], line]})
    replies["nvml:gpu3"] = Reply("ok", {"handle_error": 15})
    for id in [id for id in measured if id.endswith(":gpu3") or id in ("all-reduce:all", "peer-transfers:all")]:
        del measured[id]


def _link_down(replies: Values, measured: Values) -> None:
    links = copy.deepcopy(replies["nvml:gpu5"].value["NvLinks"])
    links["4"] |= {"State": 0}
    _of_gpu(5, NvLinks=links)(replies, measured)


def _other_kernel(replies: Values, measured: Values) -> None:
    replies["uname"] = Reply("ok", {**replies["uname"].value, "release": "6.18.40"})


def _other_package(replies: Values, measured: Values) -> None:
    packages = [
        {**package, "version": "4.61.0"} if package["name"] == "fonttools" else package for package in replies["packages"].value
    ]
    replies["packages"] = Reply("ok", packages)


def _variable(name: str, value: str) -> Callable[[Values, Values], None]:
    def plant(replies: Values, measured: Values) -> None:
        replies["environment"] = Reply("ok", {**replies["environment"].value, name: value})

    return plant


def _slow_gpu(replies: Values, measured: Values) -> None:
    reply = measured["gemm:gpu6"]
    measured["gemm:gpu6"] = replace(reply, value=_scaled(reply.value, 0.7, ("tflops",)))


def _scaled(value: Any, factor: float, names: Iterable[str], name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _scaled(held, factor, names, key) for key, held in value.items()}
    return value * factor if isinstance(value, float) and any(part in name for part in names) else value


_LOW_LIMIT = _of_all_gpus(PowerManagementLimit=400000, EnforcedPowerLimit=400000)
FAULTS = (
    Fault("older driver", 7, ("version", "driver"), _older_driver),
    Fault("GPU 3 off the bus", 1, ("problem", "xid-79-fallen-off-bus"), _off_the_bus),
    Fault("NVLink down", 1, ("problem", "nvlink-link-down"), _link_down),
    Fault(
        "uncorrected ECC errors",
        2,
        ("problem", "ecc-uncorrected-errors"),
        _of_gpu(
            2,
            TotalEccErrors={
                "volatile_corrected": 0,
                "volatile_uncorrected": 4,
                "aggregate_corrected": 0,
                "aggregate_uncorrected": 4,
            },
        ),
    ),
    Fault(
        "power limit",
        5,
        ("problem", "sw-power-cap-low-limit"),
        _of_all_gpus(PowerManagementLimit=400000, EnforcedPowerLimit=400000),
    ),
    Fault("persistence mode", 3, ("setting", "nvml:gpu PersistenceMode"), _of_all_gpus(PersistenceMode=0)),
    Fault("another kernel", 4, ("version", "kernel"), _other_kernel),
    Fault("another package", 6, ("setting", "packages fonttools"), _other_package),
    Fault("another VBIOS", 3, ("setting", "nvml:gpu VbiosVersion"), _of_all_gpus(VbiosVersion="96.00.99.00.01")),
    Fault("variable", 2, ("problem", "nccl-env-leftovers"), _variable("NCCL_P2P_DISABLE", "1")),
    Fault("slow GPU", 1, ("figure", "GEMM bf16"), _slow_gpu),
    Fault("ECC off", 2, ("problem", "ecc-disabled"), _of_gpu(7, EccMode=[0, 0])),
)


def fleet(folder: Path, count: int, base: str = BASE, seed: int = 0, faults: Sequence[Fault] = FAULTS) -> dict[str, set[str]]:
    """Writes the files of a fleet. Returns the nodes of each fault, and those without an answer as "unreachable"."""
    sound, chance = machine.load(base), random.Random(seed)
    faults = [fault for fault in faults if sound.measured or fault.found[0] != "figure"]
    names = [f"node{number:04d}" for number in range(1, count + 1)]
    order = chance.sample(names, count)
    planted: dict[str, set[str]] = {}
    of_node: dict[str, Fault] = {}
    for fault in faults:
        planted[fault.name] = {order.pop() for _ in range(min(fault.nodes, len(order)))}
        of_node |= dict.fromkeys(planted[fault.name], fault)
    planted["unreachable"] = {order.pop() for _ in range(min(int(UNREACHABLE * count), len(order)))}
    for name in names:
        if name in planted["unreachable"]:
            data = kept(name, State.UNREACHABLE, "No route to host")
        else:
            data = snapshot.dump(_node(sound, random.Random(f"{seed} {name}"), of_node.get(name)))
        (folder / f"{name}.json").write_bytes(data)
    return planted


def _node(sound: Snapshot, chance: random.Random, fault: Fault | None) -> Snapshot:
    replies, measured = dict(sound.replies), {id: _shaken(reply, chance) for id, reply in sound.measured.items()}
    for gpu in range(8):
        question = f"nvml:gpu{gpu}"
        if question in replies:
            own = _own(chance)
            replies[question] = replace(replies[question], value={**replies[question].value, **own})
    replies["file:/proc/uptime"] = Reply(
        "ok", f"{chance.randrange(10**6)}.{chance.randrange(100):02d} {chance.randrange(10**8)}.00\n"
    )
    if fault:
        fault.plant(replies, measured)
    return replace(sound, replies=replies, measured=measured, taken=f"2026-11-23T10:{chance.randrange(60):02d}:00Z")


def _own(chance: random.Random) -> Values:
    degrees, milliwatts = chance.randrange(28, 44), chance.randrange(70_000, 125_000)
    return {
        "UUID": f"GPU-{chance.getrandbits(32):08x}-0000-4000-8000-{chance.getrandbits(48):012x}",
        "Temperature": {"gpu": degrees},
        "TemperatureV": {"gpu": degrees},
        "PowerUsage": milliwatts,
        "TotalEnergyConsumption": chance.randrange(10**12),
    }


def _shaken(reply: Reply, chance: random.Random) -> Reply:
    return replace(reply, value=_noisy(reply.value, 1 + chance.gauss(0, NOISE), ("tflops", "gb_per_s", "microseconds")))


def _noisy(value: Any, factor: float, names: tuple[str, ...], name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _noisy(held, factor, names, key) for key, held in value.items()}
    return round(value * factor, 3) if isinstance(value, float) and name in names else value


def wrong(said: Values, planted: dict[str, set[str]]) -> list[str]:
    """What the answer has wrong: faults that no item names exactly, and healthy nodes in a group."""
    found = []
    for fault in (fault for fault in FAULTS if fault.name in planted):
        named = [
            set(item["gpus"])
            for group in said["groups"]
            for item in group["items"]
            if item["kind"] == fault.found[0] and item["id"].startswith(fault.found[1])
        ]
        if planted[fault.name] not in named:
            found.append(f"{fault.name}: planted on {sorted(planted[fault.name])}, found on {[sorted(each) for each in named]}")
    sick = set().union(*planted.values())
    accused = {name for group in said["groups"] for name in group["names"]} - sick
    if accused:
        found.append(f"healthy, but in a group: {sorted(accused)}")
    return found


def measured(folder: Path, out: Path) -> tuple[float, float, int]:
    """CPU seconds, wall seconds and the most memory in bytes of one merge of these files, of all its processes together."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "gpudoctor", "fleet", "merge", str(folder)]
    command += [word for ending in ("html", "json") for word in ("-o", str(out / f"fleet.{ending}"))]
    most = 0
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while process.poll() is None:
        most = max(most, memory(process.pid))
        time.sleep(0.1)
    if process.returncode not in (0, 1):
        raise SystemExit(process.communicate()[1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.monotonic() - start, most


def memory(pid: int) -> int:
    """Of a process and its children; what they share counts once."""
    found = 0
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        found = int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1]) << 10
        found += sum(memory(int(child)) for child in children)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("nodes", nargs="?", type=int, default=1000)
    options.add_argument("--base", default=BASE)
    options.add_argument("--times", type=int, default=1)
    given = options.parse_args()
    for seed in range(given.times):
        with tempfile.TemporaryDirectory() as place:
            folder, out = Path(place) / "nodes", Path(place) / "out"
            folder.mkdir()
            out.mkdir()
            planted = fleet(folder, given.nodes, given.base, seed)
            read = sum(file.stat().st_size for file in folder.iterdir())
            cpu, wall, most = measured(folder, out)
            said = msgspec.json.decode((out / "fleet.json").read_bytes())
            page = (out / "fleet.html").stat().st_size
            faults = wrong(said, planted)
        grouped = len(planted) - 1 - sum(": planted" in line for line in faults)
        print(
            f"{given.nodes} nodes, {read >> 20} MiB: {cpu:.1f} s CPU, {wall:.1f} s, {most >> 20} MiB memory, "
            f"page {page / 1e6:.2f} MB, {grouped} of {len(planted) - 1} faults in their group"
        )
        for line in faults:
            print(f"  {line}")


if __name__ == "__main__":
    main()
