"""The workloads on libcuda alone: run on one that works without a GPU, and how the checks judge what they give."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import pytest
from each import each
from stubs import ROOT, compile_working
from waiting import HOPELESS_SECONDS

from gpudoctor import catalog
from gpudoctor.facts import Facts
from gpudoctor.files import snapshot
from gpudoctor.model import Confidence, Finding, Reply, Skip, Snapshot
from gpudoctor.worker.measuring import bench
from gpudoctor.worker.workloads.stream_overlap import KERNEL_MILLISECONDS, MOST_PIECES, in_pieces

# Sizes and times that suit the stub: small, since its kernels are loops in C.
SMALL = """
from gpudoctor.worker.workloads import host_transfers, host_transfers_at_once, peer_transfers
host_transfers.BYTES = peer_transfers.BYTES = 2 << 20
host_transfers.PAGEABLE_BYTES = host_transfers_at_once.BYTES = 1 << 20
peer_transfers.REACHED_BYTES = 1 << 20
host_transfers_at_once.MILLISECONDS = 10
"""
RUN = """
import ctypes, importlib, sys
from gpudoctor.worker.measuring import clock
from gpudoctor.worker.measuring.bench import Bench
from gpudoctor.worker.reply import Skip
clock.now = ctypes.CDLL("libcuda.so.1").working_seconds
clock.now.restype = ctypes.c_double
bench = Bench(sys.argv[2], range(int(sys.argv[3])), "full")
try:
    importlib.import_module("gpudoctor.worker.workloads." + sys.argv[1]).WORKLOAD.run(bench)
    bench.end("ok")
except Skip as skip:
    bench.end("skip", skip.reason, skip.kind)
"""
Run = Callable[..., bench.Heard]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("working")
    compile_working(directory)
    return directory


@pytest.fixture
def run(library: Path, tmp_path: Path) -> Run:
    def run_one(workload: str, gpus: int = 1, python: str = sys.executable, **settings: str) -> bench.Heard:
        file = tmp_path / "results"
        ours = {"LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT), "WORKING_GPUS": str(gpus)}
        code = [python, "-c", SMALL + RUN, workload, str(file), str(gpus)]
        done = subprocess.run(
            code, env={**os.environ, **ours, **settings}, capture_output=True, text=True, timeout=HOPELESS_SECONDS
        )
        heard = bench.read(str(file))
        assert done.returncode == 0, done.stderr
        assert heard.end
        return heard

    return run_one


OTHER_PYTHONS = sorted((Path.home() / ".pyenv/versions").glob("3.8.*/bin/python"))


@pytest.mark.parametrize("python", [sys.executable, *map(str, OTHER_PYTHONS)])
def test_host_transfers(run: Run, python: str) -> None:
    values = run("host_transfers", python=python).values
    rates = {"pinned to GPU": 1, "pinned from GPU": 1, "pinned both ways": 2, "pageable to GPU": 1, "pageable from GPU": 1}
    assert {name: values[name]["gb_per_s"] for name in rates} == pytest.approx(rates, rel=0.01)
    assert values["memory"] == {"bytes": 2 << 20, "near_gpu": None}
    assert values["4 KiB to GPU"]["microseconds"] == pytest.approx(1 + 4.096)
    assert values["1 MiB from GPU"]["microseconds"] == pytest.approx(1 + 1048.576)
    for name in ("pinned to GPU", "pinned both ways", "pageable to GPU"):
        assert values[name]["wrong_words"] == 0


@pytest.mark.parametrize("function", ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"])
def test_damage_on_the_way_is_seen(run: Run, function: str) -> None:
    values = run("host_transfers", WORKING_FLIP=function).values
    assert [values[name]["wrong_words"] > 0 for name in ("pinned to GPU", "pinned both ways", "pageable to GPU")] == [True] * 3


def test_all_gpus_at_once(run: Run) -> None:
    values = run("host_transfers_at_once", gpus=3).values
    assert sorted(values) == ["pinned from GPU", "pinned to GPU"]
    assert values["pinned to GPU"]["wrong_words"] == {"0": 0, "1": 0, "2": 0}
    assert values["pinned to GPU"]["each"] == pytest.approx({"0": 1, "1": 1, "2": 1}, rel=0.01)
    assert values["pinned to GPU"]["gb_per_s"] == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("workload", ["host_transfers_at_once", "peer_transfers"])
def test_one_gpu_is_skipped_before_any_context(run: Run, workload: str) -> None:
    heard = run(workload, WORKING_CODES="cuInit=999")
    assert heard.end
    assert (heard.end["end"], heard.end["kind"]) == ("skip", "not applicable")


def test_peers(run: Run) -> None:
    values = run("peer_transfers", gpus=3).values
    assert sorted(values) == ["0<>1", "0<>2", "0>1", "0>2", "1<>2", "1>0", "1>2", "2>0", "2>1", "pairs"]
    pair = values["2>0"]
    assert pair["gb_per_s"] == pytest.approx(1, rel=0.01)
    assert pair["microseconds"] == pytest.approx(1 + 0.004)
    assert (pair["refused"], pair["wrong_words"], pair["wrong_words_by_kernels"]) == ("", 0, 0)
    assert pair["read_nanoseconds"] == pytest.approx(500, rel=0.01)
    assert values["0<>1"]["gb_per_s"] == pytest.approx(2, rel=0.01)
    assert values["0<>1"]["wrong_words"] == 0


def test_peers_that_damage_data(run: Run) -> None:
    values = run("peer_transfers", gpus=2, WORKING_FLIP="cuMemcpyPeerAsync").values
    assert [values[pair]["wrong_words"] for pair in ("0>1", "1>0", "0<>1")] == [1, 1, 2]


def test_reads_that_lose_their_way(run: Run) -> None:
    pair = run("peer_transfers", gpus=2, WORKING_LOST="1").values["0>1"]
    assert (pair["wrong_words"], pair["wrong_words_by_kernels"]) == (0, 0)
    assert "read_nanoseconds" not in pair


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"WORKING_NO_PEERS": "1"}, "the driver reports no peer access"),
        ({"WORKING_CODES": "cuCtxEnablePeerAccess=711"}, "CUDA_ERROR_TEST"),
    ],
)
def test_peers_without_access_go_through_the_host(run: Run, setting: dict[str, str], why: str) -> None:
    pair = run("peer_transfers", gpus=2, **setting).values["0>1"]
    assert (pair["refused"], pair["wrong_words"]) == (why, 0)
    assert "wrong_words_by_kernels" not in pair


COPY_MILLISECONDS, COMPUTE_MILLISECONDS = 8.389, 10  # of 8 MiB at the stub's 1 GB/s


def test_overlap(run: Run) -> None:
    values = run("stream_overlap").values
    assert values["to GPU"]["wrong_words"] == 0
    assert [values[way]["hidden"] for way in ("to GPU", "from GPU")] == pytest.approx([1, 1], abs=0.01)
    timeline = values["to GPU"]["timeline"]
    assert timeline["compute"] == [pytest.approx([0, COMPUTE_MILLISECONDS], abs=0.01)]
    assert timeline["copy"] == [pytest.approx([0, COPY_MILLISECONDS], abs=0.01)]
    side_by_side = values["concurrent kernels"]
    assert side_by_side["one_milliseconds"] == pytest.approx(KERNEL_MILLISECONDS, abs=0.01)
    assert side_by_side["all_milliseconds"] == pytest.approx(KERNEL_MILLISECONDS, abs=0.01)


@pytest.mark.parametrize("count", [1, MOST_PIECES - 1, MOST_PIECES, 67])
def test_copies_are_shown_in_a_few_pieces(count: int) -> None:
    done: list[int] = []
    pieces = in_pieces(lambda: done.append(len(done)), count)
    assert len(pieces) == min(count, MOST_PIECES)
    lengths = []
    for piece in pieces:
        before = len(done)
        piece()
        lengths.append(len(done) - before)
    assert len(done) == count
    assert max(lengths) - min(lengths) <= 1


def test_blocking_launches_hide_nothing(run: Run) -> None:
    values = run("stream_overlap", CUDA_LAUNCH_BLOCKING="1").values
    assert values["to GPU"]["hidden"] == pytest.approx(0, abs=0.01)
    together = COMPUTE_MILLISECONDS + COPY_MILLISECONDS
    assert values["to GPU"]["timeline"]["copy"] == [pytest.approx([COMPUTE_MILLISECONDS, together], abs=0.01)]
    side_by_side = values["concurrent kernels"]
    assert side_by_side["one_milliseconds"] == pytest.approx(KERNEL_MILLISECONDS, abs=0.01)
    assert side_by_side["all_milliseconds"] == pytest.approx(side_by_side["kernels"] * KERNEL_MILLISECONDS, abs=0.01)


def test_launches(run: Run) -> None:
    values = run("kernel_launch").values
    assert values["single"]["microseconds"] == pytest.approx(1 + 2)
    assert values["back to back"]["microseconds"] == pytest.approx(2, rel=0.01)
    assert values["graph"]["microseconds"] == pytest.approx(1, rel=0.01)


def test_launches_that_cannot_be_captured_while_blocking(run: Run) -> None:
    settings = {"CUDA_LAUNCH_BLOCKING": "1", "WORKING_CODES": "cuStreamBeginCapture_v2=900"}
    assert "CUDA_LAUNCH_BLOCKING" in run("kernel_launch", **settings).values["graph"]["skipped"]


def test_allocation(run: Run) -> None:
    values = run("allocation").values
    assert sorted(values) == ["cuMemAlloc 1 MiB", "cuMemAlloc 64 MiB", "pool 1 MiB", "pool 64 MiB"]
    assert {name.split()[0]: value["microseconds"] for name, value in values.items()} == pytest.approx(
        {"cuMemAlloc": 20, "pool": 2}
    )
    assert all(value["wrong_bytes"] == 0 for value in values.values())


# What healthy machines gave: one H100, two H200 on NVLink.
DURING = {
    "samples": 3,
    "sm_mhz": 1980.0,
    "memory_mhz": 3201.0,
    "watts": 120.0,
    "celsius": 35,
    "pcie_generation": 5,
    "pcie_width": 16,
    "reasons": {},
}
HOST = {
    "memory": {"bytes": 256 << 20, "near_gpu": True},
    "pinned from GPU": {"gb_per_s": 55.2, "spread": 0.001, "during": DURING},
    "pinned to GPU": {"gb_per_s": 55.1, "spread": 0.001, "wrong_words": 0, "during": DURING},
    "pinned both ways": {"gb_per_s": 86.8, "wrong_words": 0, "during": DURING},
    "pageable to GPU": {"gb_per_s": 7.9, "spread": 0.1, "wrong_words": 0},
    "4 B to GPU": {"microseconds": 6.0, "spread": 0.1},
}
AT_ONCE = {
    "pinned from GPU": {"gb_per_s": 110.0, "each": {"0": 55.0, "1": 55.0}},
    "pinned to GPU": {"gb_per_s": 110.0, "each": {"0": 55.0, "1": 55.0}, "wrong_words": {"0": 0, "1": 0}},
}
PAIR = {"refused": "", "gb_per_s": 380.0, "spread": 0.01, "microseconds": 9.0, "wrong_words": 0, "wrong_words_by_kernels": 0}
PAIR["read_nanoseconds"] = 830.0
PEERS = {
    "0>1": PAIR,
    "1>0": PAIR,
    "0<>1": {"gb_per_s": 740.0, "wrong_words": 0},
    "pairs": {"gpus": 2, "during": {"0": DURING, "1": DURING}},
}
OVERLAP = {
    "engines": {"copy": 3, "concurrent_kernels": 1},
    "from GPU": {"hidden": 0.997, "during": DURING},
    "to GPU": {"hidden": 0.998, "wrong_words": 0, "during": DURING},
    "concurrent kernels": {"kernels": 8, "one_milliseconds": 2.0, "all_milliseconds": 2.1},
}
LAUNCH = {
    "single": {"microseconds": 11.0, "spread": 0.1, "during": DURING},
    "back to back": {"microseconds": 3.5, "spread": 0.1},
    "graph": {"microseconds": 1.4, "spread": 0.1},
}
ALLOCATION = {
    "cuMemAlloc 64 MiB": {"microseconds": 400.0, "spread": 0.1, "wrong_bytes": 0},
    "pool 64 MiB": {"microseconds": 5.0, "spread": 0.1, "wrong_bytes": 0},
}
HEALTHY = {
    "host-transfers": HOST,
    "host-transfers-at-once": AT_ONCE,
    "peer-transfers": PEERS,
    "stream-overlap": OVERLAP,
    "kernel-launch": LAUNCH,
    "allocation": ALLOCATION,
}
TOGETHER = ("host-transfers-at-once", "peer-transfers")
OTHER = {"others": [{"pid": 77, "name": "python", "mib": 20000}]}
Change = dict[str, Any]


def facts(changes: dict[str, Change] | None = None, replies: Change | None = None) -> Facts:
    return Facts(measured_machine(changes, replies))


def measured_machine(changes: dict[str, Change] | None = None, replies: Change | None = None) -> Snapshot:
    """Two healthy H200, with changes (workload -> result -> values) on the second, and other replies."""
    taken = machine.load("h200-x2")
    measured = {"plan": Reply("ok", {"gpus": [0, 1], "workloads": {}, "left_alone": {}, "kind": Skip.BUSY})}
    for workload, values in HEALTHY.items():
        changed = merged(values, (changes or {}).get(workload, {}))
        if workload in TOGETHER:
            measured[workload + ":all"] = Reply("ok", changed)
        else:
            measured.update({f"{workload}:gpu{index}": Reply("ok", changed if index == 1 else values) for index in (0, 1)})
    others = {question: Reply("ok", merged(taken.replies[question].value, value)) for question, value in (replies or {}).items()}
    return replace(taken, replies={**taken.replies, **others}, measured=measured)


def merged(base: Any, change: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(change, dict):
        return change
    return {**base, **{key: merged(base.get(key), value) for key, value in change.items()}}


def findings(check: str, changes: dict[str, Change] | None = None, replies: Change | None = None) -> list[Finding]:
    return list(catalog.checks()[check].judge(facts(changes, replies)))


def problems(check: str, workload: str, change: Change, replies: Change | None = None) -> list[tuple[str, str]]:
    """What is found on the second GPU, and what is said to explain it."""
    return [(finding.problem.id, finding.because) for finding in findings(check, {workload: change}, replies)]


CHECKS = ("host-transfers", "peer-transfers", "stream-overlap", "kernel-launch", "allocation")
BLOCKING = {"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}


@each("check", CHECKS)
def test_healthy_machine(check: str) -> None:
    assert findings(check) == []
    assert catalog.checks()[check].summary(facts())
    assert all(figure.value > 0 and not figure.wrong for figure in catalog.checks()[check].figures(facts()))


@each("check", CHECKS)
def test_nothing_measured_is_no_pass(check: str) -> None:
    empty = Facts(machine.load("h200-x2"))
    with pytest.raises(Skip):
        list(catalog.checks()[check].judge(empty))


@each("check", CHECKS)
def test_replay_keeps_what_was_measured(check: str) -> None:
    again = Facts(snapshot.parse(snapshot.dump(measured_machine()), check))
    assert list(catalog.checks()[check].figures(again)) == list(catalog.checks()[check].figures(facts()))


def test_slow_link() -> None:
    half = {**DURING, "pcie_width": 8}
    change = {"pinned to GPU": {"gb_per_s": 27.0, "during": half}, "pinned from GPU": {"gb_per_s": 27.0, "during": half}}
    assert problems("host-transfers", "host-transfers", change) == [("pcie-link-low-while-copying", "pcie-width-downgraded")]
    slow = {**DURING, "pcie_generation": 3}
    change = {"pinned to GPU": {"gb_per_s": 13.0, "during": slow}}
    assert problems("host-transfers", "host-transfers", change) == [("pcie-link-low-while-copying", "pcie-gen-low-under-load")]


def test_half_of_the_lanes_in_a_virtual_machine_are_whole() -> None:
    change = {name: {"gb_per_s": 27.0, "during": {"pcie_width": 8}} for name in ("pinned to GPU", "pinned from GPU")}
    eight = {"nvml:gpu1": {"CurrPcieLinkWidth": 8}}
    by_link = [finding.message for finding in findings("host-transfers", {"host-transfers": change}, eight)]
    assert not any("PCIe 5 x" in message for message in by_link)  # only its sibling tells it


def test_slow_transfers_with_a_whole_link() -> None:
    change: Change = {"pinned to GPU": {"gb_per_s": 40.0}}
    assert problems("host-transfers", "host-transfers", change) == [("host-transfers-slow", "")]
    change["memory"] = {"near_gpu": False}
    assert problems("host-transfers", "host-transfers", change) == [("host-transfers-slow", "numa-affinity-wrong")]
    change = {"pinned to GPU": {"gb_per_s": 30.0, "during": OTHER}}
    assert problems("host-transfers", "host-transfers", change) == [("gpu-shared-while-measured", "other-process-using-gpu")]


def test_pageable_memory_and_small_copies_are_only_shown() -> None:
    change = {"pageable to GPU": {"gb_per_s": 1.0}, "4 B to GPU": {"microseconds": 500.0}}
    assert problems("host-transfers", "host-transfers", change) == []


def test_clocks_that_nothing_raised_explain_no_slow_transfer() -> None:
    change = {"pinned to GPU": {"gb_per_s": 40.0, "during": {"sm_mhz": 345.0, "memory_mhz": 1200.0}}}
    assert problems("host-transfers", "host-transfers", change) == [("host-transfers-slow", "")]


def test_damaged_transfer() -> None:
    (finding,) = findings("host-transfers", {"host-transfers": {"pinned both ways": {"wrong_words": 3}}})
    assert (finding.problem.id, finding.gpu) == ("host-transfer-damages-data", 1)


def test_shared_path() -> None:
    change = {"pinned to GPU": {"each": {"0": 12.0, "1": 12.0}}}
    assert problems("host-transfers", "host-transfers-at-once", change) == [("gpus-share-narrow-path", "")]
    assert problems("host-transfers", "host-transfers-at-once", {"pinned to GPU": {"each": {"0": 27.0, "1": 27.0}}}) == []


def test_one_gpu_has_no_others_at_once() -> None:
    taken = replace(machine.load("h100"), measured={"host-transfers:gpu0": Reply("ok", HOST)})
    assert list(catalog.checks()["host-transfers"].judge(Facts(taken))) == []


def test_slow_peers() -> None:
    (finding,) = findings("peer-transfers", {"peer-transfers": {"1>0": {"gb_per_s": 250.0}}})
    assert (finding.problem.id, finding.gpu, finding.confidence) == ("peer-transfers-slow", 1, Confidence.UNKNOWN)
    assert "NVLink 4 × 18 links" in finding.message


def test_peers_that_nvlink_joins_and_cuda_does_not() -> None:
    change = {"0>1": {"refused": "the driver reports no peer access", "gb_per_s": 30.0}}
    assert problems("peer-transfers", "peer-transfers", change) == [
        ("nvlink-peer-access-refused", "nvlink-peers-without-p2p"),
    ]


def test_damaged_peer_copy() -> None:
    change = {"0>1": {"wrong_words": 5, "wrong_words_by_kernels": 1}}
    (finding,) = findings("peer-transfers", {"peer-transfers": change})
    assert finding.problem.id == "peer-copy-damages-data"
    assert "5 wrong 8-byte words when copied, 1 wrong 8-byte words when read" in finding.message


def without_nvlink(topology: int, group: str | None) -> Change:
    """The pair on bare metal, joined by PCIe only, with the IOMMU as given."""
    pci = machine.load("h200-x2").replies["pci"].value
    functions = {address: {**function, "iommu_group_type": group} for address, function in pci["functions"].items()}
    return {
        **{f"nvml:gpu{index}": {"NvLinks": {"error": 3}} for index in (0, 1)},
        "nvml:peers": {"topology": {"0,1": topology}},
        "pci": {"functions": functions},
        "processor": "processor : 0\nflags : fpu sse2",
    }


@pytest.mark.parametrize(
    ("topology", "group", "found"),
    [
        (10, "identity", [("peer-transfers-slow", "")]),
        (10, "DMA-FQ", [("peer-transfers-slow", "iommu-translates-peer-traffic")]),
        (50, "DMA-FQ", []),  # over the sockets' link: nobody knows what to expect
    ],
)
def test_slow_peers_over_pcie(topology: int, group: str, found: list[tuple[str, str]]) -> None:
    change = {"0>1": {"gb_per_s": 14.0}, "1>0": {"gb_per_s": 50.0}}
    assert problems("peer-transfers", "peer-transfers", change, without_nvlink(topology, group)) == found


def test_damage_over_pcie_comes_from_the_iommu() -> None:
    change = {"0>1": {"gb_per_s": 50.0, "wrong_words": 5}, "1>0": {"gb_per_s": 50.0}}
    found = problems("peer-transfers", "peer-transfers", change, without_nvlink(10, "DMA"))
    assert found == [("peer-copy-damages-data", "iommu-translates-peer-traffic")]


NO_OVERLAP = {"to GPU": {"hidden": 0.01}, "from GPU": {"hidden": -0.02}}


def test_no_overlap() -> None:
    (finding,) = findings("stream-overlap", {"stream-overlap": NO_OVERLAP})
    assert (finding.problem.id, finding.confidence) == ("copies-do-not-overlap", Confidence.LIKELY)
    assert "this is a virtual machine" in finding.message


@pytest.mark.parametrize(
    ("replies", "because"),
    [
        (BLOCKING, "cuda-launch-blocking-left-on"),
        ({"environment": {"CUDA_INJECTION64_PATH": "/opt/x.so"}}, "cupti-multiple-subscribers"),
        ({"cpus": {"affinity": [3]}}, "cpu-affinity-narrow"),
    ],
)
def test_why_nothing_overlaps(replies: Change, because: str) -> None:
    assert problems("stream-overlap", "stream-overlap", NO_OVERLAP, replies) == [("copies-do-not-overlap", because)]


def test_overlap_on_a_shared_gpu() -> None:
    change = {"to GPU": {"hidden": 0.3, "during": OTHER}}
    assert problems("stream-overlap", "stream-overlap", change) == [("gpu-shared-while-measured", "other-process-using-gpu")]


def test_overlap_without_a_copy_engine() -> None:
    change = {"engines": {"copy": 0}, **NO_OVERLAP}
    assert problems("stream-overlap", "stream-overlap", change) == []


def test_wrong_data_of_an_overlapped_copy() -> None:
    change = {"to GPU": {"wrong_words": 1}}
    assert problems("stream-overlap", "stream-overlap", change) == [("gpu-computes-wrong", "")]


def test_kernels_one_by_one() -> None:
    change = {"concurrent kernels": {"all_milliseconds": 16.0}}
    assert problems("stream-overlap", "stream-overlap", change) == [("kernels-run-one-by-one", "")]


def test_slow_launches() -> None:
    change = {"single": {"microseconds": 90.0}}
    assert problems("kernel-launch", "kernel-launch", change) == [("kernel-launch-slow", "")]


def test_launches_that_wait() -> None:
    change = {"back to back": {"microseconds": 10.0}}
    assert problems("kernel-launch", "kernel-launch", change) == []
    found = problems("kernel-launch", "kernel-launch", change, BLOCKING)
    assert found == [("kernel-launch-slow", "cuda-launch-blocking-left-on")]


def test_graph_that_was_skipped() -> None:
    assert problems("kernel-launch", "kernel-launch", {"graph": {"skipped": "this driver has no cuGraphLaunch"}}) == []


def test_slow_allocation() -> None:
    assert problems("allocation", "allocation", {"pool 64 MiB": {"microseconds": 3000.0}}) == [("allocation-slow", "")]
    assert problems("allocation", "allocation", {"pool": {"skipped": "none here"}}) == []


def test_wrong_memory() -> None:
    assert problems("allocation", "allocation", {"pool 64 MiB": {"wrong_bytes": 9}}) == [("gpu-computes-wrong", "")]
