"""Long loads: what they verify, when they stop, and how their results are judged."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import machine
import pytest
from stubs import ROOT
from test_driver_workloads import library  # noqa: F401
from waiting import HOPELESS_SECONDS

from gpudoctor import catalog, doctor, knowledge
from gpudoctor.choices import BURN
from gpudoctor.model import Reply, Report, Status
from gpudoctor.wanted import Burning, Wanted
from gpudoctor.worker.measuring import guard
from gpudoctor.worker.measuring.watching.record import Record, Xid

RING = """
import json, sys
from gpudoctor.worker.measuring.bench import Bench, read
from gpudoctor.worker.workloads import burn_links, peer_transfers
peer_transfers.BYTES, burn_links.BATCH, burn_links.LEAST_SECONDS = 1 << 20, 1, 0.01
burn_links.run(Bench(sys.argv[1], range(3), options={"seconds": 0.03}))
print(json.dumps(read(sys.argv[1]).values))
"""
LOADS = """
import json, sys
from gpudoctor.worker.measuring.driver import Driver
from gpudoctor.worker.workloads.burning import copies, memory
memory.CHUNK, memory.LEFT_FREE, copies.BYTES, copies.BATCH = 1 << 20, 62 << 20, 1 << 20, 1
driver = Driver(0)
load = getattr(sys.modules["gpudoctor.worker.workloads.burning." + sys.argv[1].lower()], sys.argv[1])
print(json.dumps(load(driver, driver.module()).sustained(0.01)))
"""


def ran(library: Any, argument: str, code: str = LOADS, **settings: str) -> Any:  # noqa: F811
    ours = {"LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT), **settings}
    command = [sys.executable, "-c", code, argument]
    done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=HOPELESS_SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_memory_is_filled_and_read_back(library: Any) -> None:  # noqa: F811
    found = ran(library, "Memory")
    assert (found["wrong_words"], found["wrong"]) == (0, [])
    assert found["patterns"] >= 1
    assert found["bytes"] >= 1 << 20


@pytest.mark.parametrize("function", ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"])
def test_a_damaged_copy_is_seen(library: Any, function: str) -> None:  # noqa: F811
    assert ran(library, "Copies")["wrong_words"] == 0
    assert ran(library, "Copies", WORKING_FLIP=function)["wrong_words"] > 0


def test_every_gpu_sends_to_every_other(library: Any, tmp_path: Path) -> None:  # noqa: F811
    found = ran(library, str(tmp_path / "healthy"), RING, WORKING_GPUS="3")
    stretches = [value for name, value in found.items() if name.startswith("ring")]
    assert {pair for stretch in stretches for pair in stretch["wrong_words"]} >= {"0>1", "1>2", "2>0"}
    assert not any(count for stretch in stretches for count in stretch["wrong_words"].values())
    assert found["complete"] == {"seconds": 0.03}
    damaged = ran(library, str(tmp_path / "damaged"), RING, WORKING_GPUS="3", WORKING_FLIP="cuMemcpyPeerAsync")
    assert all(damaged["ring 0"]["wrong_words"].values())


needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


def flipped(device: str) -> None:
    import torch

    from gpudoctor.worker.workloads.burning import products

    one = products.Products(torch, "fp32", torch.device(device))
    other = products.Products(torch, "fp32", torch.device(device))
    healthy = one.sustained(0.01)
    assert (healthy["wrong_words"], healthy["verified"]) == (0, True)
    assert healthy["checksum"] == other.bursts(0.01, 1.0)["checksum"]
    one.matrices[0].view(torch.int32)[5, 7] ^= 1 << 21
    broken = one.sustained(0.0001)
    assert broken["wrong_words"] >= one.size // 2
    assert broken["wrong"][0]["address"].startswith("row 5,")
    assert broken["wrong"][0]["wrong_bits"] > 0


@pytest.mark.slow
@pytest.mark.xdist_group("torch")
@needs_torch
def test_one_flipped_bit_of_a_product_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from gpudoctor.worker.measuring import torch_gpu
    from gpudoctor.worker.workloads.burning import products

    monkeypatch.setattr(products, "SIZES", (64,))
    torch.set_num_threads(1)
    monkeypatch.setattr(torch_gpu, "free_bytes", lambda: 1 << 30)
    monkeypatch.setattr(torch_gpu, "synchronize", lambda: None)
    monkeypatch.setattr(torch_gpu, "elapsed", lambda work: work() is None or 1.0)
    flipped("cpu")


@pytest.mark.gpu
@needs_torch
def test_one_flipped_bit_on_a_gpu_is_named() -> None:
    in_its_own_process = multiprocessing.get_context("spawn").Process(target=flipped, args=("cuda",))
    in_its_own_process.start()
    in_its_own_process.join(HOPELESS_SECONDS)
    assert in_its_own_process.exitcode == 0


@pytest.mark.gpu
@needs_torch
def test_a_healthy_gpu_burns_without_findings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpudoctor", "burn", "--minutes", "0.3", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HOPELESS_SECONDS)
    said = json.loads(done.stdout)
    assert done.returncode == 0, said["diagnosis"]
    assert {row["id"]: row["status"] for row in said["checks"]}["burn"] == "pass"


def sampled(**changes: Any) -> Any:
    """A sampler as the guard reads it, of one GPU."""
    sample = {"celsius": 70, "others": [], **changes.pop("sample", {})}
    counters = {"before": {"ecc_uncorrected": 2}, "during": {"ecc_uncorrected": 2}, **changes}
    limits = {0: {"slowdown_celsius": 92}}
    return SimpleNamespace(
        samples={0: SimpleNamespace(last=sample)}, counters={0: counters}, limits=limits, record=Record([0], 0.0)
    )


def test_a_long_load_stops_before_it_harms() -> None:
    assert guard.dangers(sampled()) == {}
    assert "92 °C" in guard.dangers(sampled(sample={"celsius": 92}))[0]
    assert "memory error" in guard.dangers(sampled(during={"ecc_uncorrected": 3}))[0]
    assert "train (pid 7)" in guard.dangers(sampled(sample={"others": [{"pid": 7, "name": "train", "mib": 9}]}))[0]


def test_a_fatal_xid_is_one_of_the_table() -> None:
    assert {xid.code for xid in map(knowledge.xid, range(256)) if xid and xid.severity == "fatal"} == guard.FATAL_XIDS
    line = "NVRM: Xid (PCI:0000:19:00): 149, NETIR_LINK_EVT  {} XC0 i0 Link 00 (0x004505c6 0x00000000)"
    severe = {kind: guard.is_fatal(Xid(0, 149, line.format(kind))) for kind in ("Fatal", "Nonfatal")}
    assert severe == {"Fatal": True, "Nonfatal": False}
    assert not guard.is_fatal(Xid(0, 31))


def during(celsius: float, mhz: float = 1755, **reasons: float) -> dict[str, Any]:
    return {"samples": 40, "celsius": celsius, "sm_mhz": mhz, "median_watts": 690.0, "watts": 700.0, "reasons": reasons}


def burned(speeds: list[float], celsius: float = 65, checksum: str = "a", **changes: dict[str, Any]) -> Reply:
    """A GPU under load, with a product stretch for each speed. changes: fields of the stretch memory_1."""
    value: dict[str, Any] = {
        f"power {number}": {
            "load": "power",
            "precision": "bf16",
            "size": 16384,
            "products": 900,
            "tflops": speed,
            "wrong_words": 0,
            "checksum": checksum,
            "verified": True,
            "seconds": 20.0,
            "during": during(celsius),
        }
        for number, speed in enumerate(speeds)
    }
    memory = {"load": "memory", "wrong_words": 0, "wrong": [], "patterns": 9, "gb_per_s": 3800.0, "bytes": 120 << 30}
    value["memory 99"] = {**memory, "total_bytes": 139 << 30, "during": during(celsius), **changes.pop("memory", {})}
    value.update(changes)
    return Reply("ok", {**value, "complete": {"seconds": 600.0}}, seconds=600.0)


def report(replies: dict[str, Reply]) -> Report:
    taken = machine.load("h200-x2-full")
    plan = Reply("ok", {"workloads": {"burn": "burn"}, "gpus": [0, 1], "left_alone": {}, "kind": "busy"})
    burning = {f"burn:{gpu}": reply for gpu, reply in replies.items()}
    return doctor.judge_at_its_level(replace(taken, measured={"plan": plan, **burning}, level=BURN))


def found(replies: dict[str, Reply]) -> dict[str, tuple[str, int | None]]:
    return {entry.problem: (entry.message, entry.gpu) for entry in report(replies).diagnosis if entry.check.startswith("burn")}


STEADY = [700.0, 698.0, 699.0, 697.0, 698.0, 699.0, 698.0, 697.0]


def test_a_healthy_load_says_what_it_proved() -> None:
    rows = {row.id: row for row in report({"gpu0": burned(STEADY), "gpu1": burned(STEADY, 68)}).checks}
    assert rows["burn"].status is rows["burn-steadiness"].status is Status.PASS
    assert "10.0 min" in rows["burn"].message


def test_a_wrong_word_is_found_where_it_is() -> None:
    word = {"address": "0x7f0000000010", "words": 1, "expected": "0x01", "read_again": "0x03", "wrong_bits": 1}
    wrong = {"wrong_words": 3, "wrong": [word, word, word]}
    message, gpu = found({"gpu0": burned(STEADY), "gpu1": burned(STEADY, memory=wrong)})["burn-wrong-memory"]
    assert gpu == 1
    assert "0x7f0000000010 was wrong 3 times" in message


def test_gpus_that_disagree_are_both_named() -> None:
    message, _ = found({"gpu0": burned(STEADY), "gpu1": burned(STEADY, checksum="b")})["burn-gpus-disagree"]
    assert "GPU 0, 1" in message


def test_a_gpu_that_slows_down_and_one_that_is_slow_or_hot() -> None:
    sagging = [700.0, *(700.0 - 15 * step for step in range(8))]
    assert found({"gpu0": burned(STEADY), "gpu1": burned(sagging)})["burn-slows-down"][1] == 1
    assert found({"gpu0": burned(STEADY), "gpu1": burned([speed * 0.85 for speed in STEADY])})["burn-straggler"][1] == 1
    assert found({"gpu0": burned(STEADY), "gpu1": burned(STEADY, 85)})["burn-hotter"][1] == 1


def test_a_load_that_was_stopped_is_no_pass() -> None:
    stopped = replace(burned(STEADY), status="guarded", detail="GPU 0 reached 92 °C, its slowdown temperature")
    assert "92 °C" in found({"gpu0": stopped})["burn-stopped"][0]
    at_once = {f"gpu{gpu}": Reply("guarded", None, f"GPU {gpu} reported Xid 79, which is fatal", 1.0) for gpu in (0, 1)}
    message = found(at_once)["burn-stopped"][0]
    assert message == "stopped after 1 s: GPU 0 reported Xid 79, which is fatal; after 1 s: GPU 1 reported Xid 79, which is fatal"
    cut = burned(STEADY)
    value = {name: part for name, part in cut.value.items() if name != "complete"}
    rows = {row.id: row for row in report({"gpu0": replace(cut, value=value, status="cut")}).checks}
    assert rows["burn"].status is Status.SKIP


def test_only_the_load_is_measured() -> None:
    checks = catalog.checks()
    chosen = Wanted(burning=Burning(60, ("power", "memory", "pcie", "links"))).checks()
    assert {name for id in chosen for name in checks[id].workloads} == {"burn", "burn-links", "burn-collectives"}
    assert not {"burn", "burn-links", "burn-collectives"} & {*Wanted(level="full").checks()}
    assert "burn-links" not in Wanted(burning=Burning(60, ("memory",))).checks()
    assert Burning(100, ("memory", "links")).options(2) == {
        "burn": {"seconds": 80.0, "loads": ["memory"]},
        "burn-links": {"seconds": 10.0},
        "burn-collectives": {"seconds": 10.0},
    }
