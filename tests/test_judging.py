"""How measured numbers are judged: by datasheet, own attributes, siblings and baseline, and why a slow GPU is slow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import machine
import pytest
from each import each

from gpudoctor import catalog, doctor, knowledge
from gpudoctor.facts import Facts
from gpudoctor.judging.measured import expect
from gpudoctor.judging.measured.language_models import Machine, rows
from gpudoctor.knowledge import gpus, performance
from gpudoctor.model import Confidence, Diagnosis, Figure, Reply, Report, Snapshot, Status

QUIET = {"samples": 20, "sm_mhz": 1980, "memory_mhz": 2619, "watts": 600.0, "celsius": 50, "reasons": {}}
PLAN = {"workloads": {"memory-bandwidth": "memory-bandwidth"}, "gpus": [0], "left_alone": {}, "kind": "busy"}
HEALTHY = {"read": 3057.0, "write": 2900.0, "copy": 3017.0, "saxpy": 3042.0, "triad": 3040.0}


def memory(share: float = 1.0, wrong: int = 0, **during: Any) -> dict[str, Any]:
    """What the workload memory-bandwidth gives on an H100 at a share of its speed."""
    seen = {**QUIET, **during}
    return {name: {"gb_per_s": value * share, "wrong_elements": wrong, "during": seen} for name, value in HEALTHY.items()}


def taken(*each: Mapping[str, Any], replies: Mapping[str, Any] | None = None, **settings: Any) -> Snapshot:
    """A healthy machine with as many H100 as there are measurements."""
    base = machine.load("h100")
    known = dict(base.replies)
    if len(each) > 1:
        machine.multiply(known, len(each))
    for question, change in (replies or {}).items():
        known[question] = Reply("ok", machine._merged(known[question].value, change))
    measured = {f"memory-bandwidth:gpu{index}": Reply("ok", dict(values), seconds=1.0) for index, values in enumerate(each)}
    plan = Reply("ok", {**PLAN, "gpus": list(range(len(each)))})
    return replace(base, replies=known, measured={"plan": plan, **measured}, **settings)


def judged(snapshot: Snapshot) -> Report:
    return doctor.judge(
        snapshot, doctor.select(catalog.checks(), "quick", ["memory-bandwidth", "gpu-processes", "cuda-environment"])
    )


def diagnosis(snapshot: Snapshot) -> list[Diagnosis]:
    return list(judged(snapshot).diagnosis)


def only(snapshot: Snapshot) -> Diagnosis:
    (entry,) = diagnosis(snapshot)
    return entry


def test_a_healthy_gpu_is_healthy() -> None:
    assert diagnosis(taken(memory())) == []


def test_nothing_measured_is_no_pass() -> None:
    (row,) = [row for row in judged(replace(taken(memory()), measured={})).checks if row.id == "memory-bandwidth"]
    assert row.status is Status.SKIP


@each(
    ("during", "problem"),
    [
        ({"others": [{"pid": 77, "name": "python", "mib": 900}]}, "gpu-shared-while-measured"),
        ({"reasons": {"0x80": 0.9}, "sm_mhz": 500}, "power-brake-under-load"),
        ({"reasons": {"0x40": 0.8, "0x8": 0.8}, "celsius": 92}, "thermal-slowdown-under-load"),
        ({"reasons": {"0x20": 0.5}, "celsius": 88}, "thermal-slowdown-under-load"),
        ({"sm_mhz": 900}, "clocks-held-low-under-load"),
        ({"memory_mhz": 1593}, "clocks-held-low-under-load"),
        ({"reasons": {"0x4": 0.9}, "sm_mhz": 1200}, "power-cap-under-load"),
        ({}, "gpu-slower-than-expected"),
        # Of several the first in order: who shares the GPU explains more than the power that both draw.
        ({"reasons": {"0x4": 0.9}, "sm_mhz": 1200, "others": [{"pid": 77, "name": "a", "mib": 1}]}, "gpu-shared-while-measured"),
        # A reason that was there for a moment slows nothing down.
        ({"reasons": {"0x40": 0.05}}, "gpu-slower-than-expected"),
    ],
)
def test_what_was_seen_meanwhile_is_the_cause(during: dict[str, Any], problem: str) -> None:
    assert only(taken(memory(0.7, **during))).problem == problem


def test_a_lowered_power_limit() -> None:
    limit = {"EnforcedPowerLimit": 350000, "PowerManagementLimit": 350000}
    entry = only(taken(memory(0.7, reasons={"0x4": 0.9}), replies={"nvml:gpu0": limit}))
    assert entry.problem == "power-cap-under-load"
    assert "350 W of 700 W" in entry.message
    assert any("-pl 700" in fix.command for fix in entry.fixes)


def test_without_a_cause_it_says_what_was_ruled_out() -> None:
    entry = only(taken(memory(0.7)))
    assert entry.confidence is Confidence.UNKNOWN
    assert "gpu-shared-while-measured" in entry.evidence["ruled_out"]
    assert entry.status is Status.WARN
    assert only(taken(memory(0.5))).status is Status.FAIL


def test_without_samples_no_cause_is_ruled_out() -> None:
    values = {name: {key: value for key, value in result.items() if key != "during"} for name, result in memory(0.7).items()}
    entry = only(taken(values))
    assert entry.problem == "gpu-slower-than-expected"
    assert entry.evidence["ruled_out"] == []
    assert "thermal-slowdown-under-load" in entry.evidence["could_not_check"]


def test_wrong_results_fail_however_fast_they_are() -> None:
    entries = diagnosis(taken(memory(wrong=3)))
    assert {entry.problem for entry in entries} == {"gpu-computes-wrong"}
    assert {entry.status for entry in entries} == {Status.FAIL}


def test_the_slow_one_of_equal_gpus_is_named() -> None:
    entry = only(taken(memory(), memory(), memory(0.87), memory()))
    assert entry.gpu == 2
    assert "this machine's 4 GPUs" in entry.message


def test_equally_slow_gpus_are_all_slow() -> None:
    assert {entry.gpu for entry in diagnosis(taken(memory(0.6), memory(0.6)))} == {0, 1}


def test_what_a_gpu_reached_before_counts() -> None:
    uuid = machine.load("h100").replies["nvml:gpu0"].value["UUID"]
    assert diagnosis(taken(memory(0.95), baseline={uuid: {"memory read": 3057.0}})) == []
    entry = only(taken(memory(0.88), baseline={uuid: {"memory read": 3057.0}}))
    assert "saved baseline" in entry.message
    assert diagnosis(taken(memory(0.9), baseline={"GPU-another": {"memory read": 9999.0}})) == []


def test_what_another_check_explains_is_told_there() -> None:
    """A process that the quick checks saw, and that was still at work, is one diagnosis with what it costs."""
    busy = {
        "UtilizationRates": {"gpu": 100, "memory": 60},
        "ComputeRunningProcesses": [{"pid": 77, "usedGpuMemory": 60 << 30, "name": "python", "ours": False}],
    }
    slow = memory(0.5, others=[{"pid": 77, "name": "python", "mib": 60 << 10}])
    entry = only(taken(slow, replies={"nvml:gpu0": busy}))
    assert entry.problem == "other-process-using-gpu"
    assert entry.explains == ("memory-bandwidth",)
    assert "and 4 more figures" in entry.evidence["effects"][0]


def test_an_unknown_gpu_is_judged_by_its_own_attributes() -> None:
    name = {"name": "NVIDIA H900"}
    base = taken(memory())
    devices = [{**device, **name} for device in base.replies["cuda:devices"].value]
    changed = {**base.replies, "cuda:devices": Reply("ok", devices)}
    facts = Facts(replace(base, replies=changed))
    found = expect.memory_gb_per_s(facts, 0)
    known = expect.memory_gb_per_s(Facts(base), 0)
    assert found.value == pytest.approx(known.value, rel=0.02)
    assert found.unlisted
    assert "not in the tables" in found.rule
    compute = expect.tflops(facts, 0, "bf16")
    assert compute.value == pytest.approx(expect.tflops(Facts(base), 0, "bf16").value, rel=0.1)
    assert "132 SMs" in compute.rule


def test_a_mig_slice_is_no_whole_board() -> None:
    base = taken(memory())
    devices = [{**device, "uuid": "MIG-1"} for device in base.replies["cuda:devices"].value]
    facts = Facts(replace(base, replies={**base.replies, "cuda:devices": Reply("ok", devices)}))
    assert expect.memory_gb_per_s(facts, 0) == expect.NOTHING
    assert "MIG" in expect.tflops(facts, 0, "fp32").rule


def test_links_are_expected_by_what_they_are() -> None:
    assert expect.pcie(5, 16).value == pytest.approx(51.7, rel=0.01)
    assert (expect.pcie(4, 8).value or 0) < (expect.pcie(4, 16).value or 0)
    assert expect.pcie(9, 16) == expect.NOTHING
    pair = Facts(machine.load("h200-x2"))
    assert expect.nvlink(pair, 0).value == pytest.approx(351, rel=0.01)
    assert expect.nvlink(pair, 0, all_reduce=True).value == pytest.approx(324, rel=0.01)
    assert expect.nvlink(Facts(machine.load("h100")), 0) == expect.NOTHING


def test_less_is_better_for_times() -> None:
    assert Figure("launch", 10.0, "µs", expected=50.0, less_is_better=True).share == 5
    assert Figure("launch", 100.0, "µs", expected=50.0, less_is_better=True).share == 0.5
    assert Figure("copy", 0.0, "GB/s", expected=50.0).share == 0
    assert Figure("copy", 50.0, "GB/s").share is None


def test_a_check_took_only_its_own_time() -> None:
    """A run of all GPUs is prepared while each is measured; this snapshot still counts that as its time: 81.9 of 82.3 s."""
    full = machine.load("h200-x2-full")
    seconds = Facts(full).measured.seconds
    assert [round(seconds([workload]), 1) for workload in ("distributed", "gemm")] == [2.6, 8.0]
    without = {id: reply for id, reply in full.measured.items() if not id.startswith("history:")}
    assert Facts(replace(full, measured=without)).measured.seconds(["distributed"]) == 81.886


def test_models_that_fit() -> None:
    table = {(row.size, row.precision): row for row in rows(Machine(gpus=2, memory_gb=80, gb_per_s=3000))}
    assert table["7B", "fp16"].gpus == 1
    assert table["7B", "fp16"].least_milliseconds == pytest.approx(4.67, rel=0.01)
    assert table["70B", "fp16"].gpus == 2
    assert table["70B", "fp16"].least_milliseconds == pytest.approx(23.3, rel=0.01)
    assert table["405B", "fp16"].gpus is None


def test_throughput_is_bound_by_memory_then_by_compute() -> None:
    products = {"GEMM fp16": 600.0, "GEMM fp8": 1200.0}
    table = {(row.size, row.precision): row for row in rows(Machine(gpus=1, memory_gb=80, gb_per_s=3000, tflops=products))}
    small = table["7B", "fp16"]
    cache = 2048 * 524288 / 1e9  # GB of one answer of Llama 2 7B: 512 KiB a token
    assert small.kv_gigabytes["2048"] == pytest.approx(cache, abs=0.001)
    assert small.tokens_per_second["1"] == pytest.approx(1 / ((14 + cache) / 3000), rel=0.001)
    assert small.tokens_per_second["32"] == pytest.approx(32 / ((14 + 32 * cache) / 3000), rel=0.001)
    assert small.tokens_per_second["128"] is None  # 151 GB
    assert small.compute_bound_batch == 200  # 2 bytes, 600 TFLOP/s, 3 TB/s
    slow = {row.size: row for row in rows(Machine(1, 80, 3000, {"GEMM fp16": 60.0})) if row.precision == "int4"}
    assert slow["34B"].tokens_per_second["128"] == pytest.approx(60e12 / (2 * 34e9), rel=0.001)
    assert small.longest_context == int((72 - 14) * 1e9 // 524288)
    assert table["405B", "int4"].longest_context is None


def test_without_matrix_products_no_throughput_is_given() -> None:
    row = next(rows(Machine(gpus=1, memory_gb=80, gb_per_s=3000)))
    assert (row.tokens_per_second, row.compute_bound_batch) == ({}, None)


def test_fp8_weights_are_widened_where_there_is_no_fp8_product() -> None:
    machine = Machine(gpus=1, memory_gb=80, gb_per_s=2000, tflops={"GEMM fp16": 250.0})
    assert {row.precision: row.compute_bound_batch for row in rows(machine) if row.size == "7B"} == {
        "fp16": 125,
        "fp8": 63,
        "int4": 32,
    }


def test_shares_and_rates_are_plausible() -> None:
    table = performance.table()
    assert all(0.3 <= row.share <= 0.97 for row in table.reachable)
    names = {"any"} | {gpu.name for gpu in gpus.gpus()} | {gpu.architecture for gpu in gpus.gpus()}
    assert {row.of for row in table.reachable} <= names
    for quantity in {row.quantity for row in table.reachable}:
        assert knowledge.reachable_share(quantity, None, None), quantity
    assert len({(row.quantity, row.of) for row in table.reachable}) == len(table.reachable)
    assert all(0.6 <= row.reachable <= 0.95 for row in table.pcie)
    assert all(0.6 <= row.all_reduce <= row.reachable <= 0.95 for row in table.nvlink)


CUT_FOR_EXPORT = {"NVIDIA H20", "NVIDIA H20-3e"}  # fewer operations than their SMs could do


@each("gpu", [gpu for gpu in gpus.gpus() if gpu.sms and gpu.name not in CUT_FOR_EXPORT], ids=lambda gpu: gpu.name)
def test_own_attributes_never_promise_more_than_the_datasheet(gpu: gpus.Gpu) -> None:
    """A GPU that is in no table must not be called slow for a rate that its kind does not have."""
    for dtype, rate in knowledge.operations_per_clock(gpu.compute_capability).items():
        peak = expect._peak(gpu, dtype)
        if peak and peak >= 2 and gpu.sms and gpu.boost_mhz:  # smaller ones are rounded, or cut for export
            assert rate * gpu.sms * gpu.boost_mhz / 1e6 <= 1.2 * peak, dtype
