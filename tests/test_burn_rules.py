"""Every rule of `gpudoctor burn` over time, on virtual GPUs: it fires, and just below its limit it stays silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import machine
import pytest
from each import each
from virtual_gpus import VirtualGpu, burned, measured

from gpudoctor import catalog, doctor, resuming
from gpudoctor.choices import BURN
from gpudoctor.model import Reply, Report, Status
from gpudoctor.report import prometheus

MINUTES = 60.0
OF_ERRORS = ("burn", "burn-errors", "errors-under-load")
HEALTHY = VirtualGpu()
COOLER = VirtualGpu(tflops=698, rise=33)


def report(replies: dict[int, Reply], models: dict[int, str] | None = None) -> Report:
    taken = machine.load("hgx-h200-x8")
    plan = Reply("ok", {"workloads": {"burn": "burn"}, "gpus": [*replies], "left_alone": {}, "kind": "busy"})
    named = {f"nvml:gpu{index}": name for index, name in (models or {}).items()}
    renamed = {
        question: replace(taken.replies[question], value={**taken.replies[question].value, "Name": name})
        for question, name in named.items()
    }
    measured = {"plan": plan, **{f"burn:gpu{index}": reply for index, reply in replies.items()}}
    taken = replace(taken, replies={**taken.replies, **renamed}, measured=measured, level=BURN)
    return doctor.judge(taken, catalog.with_needs(("burn", "burn-steadiness")))


def watched_report(replies: dict[str, Reply]) -> Report:
    taken = machine.load("hgx-h200-x8")
    plan = Reply("ok", {"workloads": {"burn": "burn"}, "gpus": [0, 1], "left_alone": {}, "kind": "busy"})
    return doctor.judge(replace(taken, measured={"plan": plan, **replies}, level=BURN), catalog.with_needs(OF_ERRORS))


def found(judged: Report) -> dict[str, int | None]:
    return {entry.problem: entry.gpu for entry in judged.diagnosis if entry.check.startswith("burn")}


def four(odd: VirtualGpu) -> list[VirtualGpu]:
    return [HEALTHY, COOLER, replace(HEALTHY, tflops=702), odd]


@each(
    ["about", "gpus", "expected"],
    [
        ("two alike", [HEALTHY, COOLER], {}),
        ("four alike", four(HEALTHY), {}),
        # Drift: more than 5 % from the first to the last third.
        (
            "clocks sink from heat",
            [HEALTHY, VirtualGpu(rise=61, slowdown=95, throttles=80)],
            {"burn-slows-down", "burn-straggler", "burn-hotter"},
        ),
        ("3 % of leakage while it warms up", [replace(HEALTHY, leak=0.03)] * 2, {}),
        ("4.5 % less", [replace(HEALTHY, fade=0.06)] * 2, {}),
        ("all of them sag alike, by 6 %", [replace(HEALTHY, fade=0.085)] * 2, {"burn-slows-down"}),
        # Stragglers: 10 % of two, 5 % of more, and outliers.
        ("one of two is 12 % slower", [HEALTHY, replace(HEALTHY, tflops=616)], {"burn-straggler"}),
        ("one of two is 8 % slower", [HEALTHY, replace(HEALTHY, tflops=644)], {}),
        ("one of four is 8 % slower", four(replace(HEALTHY, tflops=644)), {"burn-straggler"}),
        ("one of four is 4 % slower", four(replace(HEALTHY, tflops=672)), {}),
        ("four that all differ", [replace(HEALTHY, tflops=tflops) for tflops in (720, 690, 670, 650)], {}),
        # Heat: 15 °C of two, 10 °C of more.
        ("one of two is 17 °C hotter", [HEALTHY, replace(HEALTHY, rise=52)], {"burn-hotter"}),
        ("one of two is 13 °C hotter", [HEALTHY, replace(HEALTHY, rise=48)], {}),
        ("one of four is 13 °C hotter", four(replace(HEALTHY, rise=48)), {"burn-hotter"}),
        ("one of four is 8 °C hotter", four(replace(HEALTHY, rise=43)), {}),
        # Hotter than both neighbours, in a row of which the last ones are in the warm air of the first ones.
        ("a row that gets warmer", [replace(HEALTHY, rise=rise) for rise in (30, 35, 41, 47, 53, 58)], {}),
        (
            "the last is 11 °C hotter than both neighbours all the way",
            [replace(HEALTHY, rise=rise) for rise in (28, 34, 40, 46, 46, 58)],
            {"burn-hotter"},
        ),
        ("every second one is in the warm rear row", [replace(HEALTHY, rise=rise) for rise in (30, 44, 31, 46, 30, 45)], {}),
        ("its memory is 13 °C hotter", four(replace(HEALTHY, memory_rise=21)), {"burn-hotter"}),
        ("its memory is 9 °C hotter", four(replace(HEALTHY, memory_rise=17)), {}),
    ],
)
def test_drift_stragglers_and_heat(
    about: str, gpus: list[VirtualGpu], expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / about.replace(" ", "-")
    folder.mkdir()
    judged = found(report(burned(gpus, 10 * MINUTES, folder, monkeypatch)))
    assert set(judged) == set(expected)
    if expected and "all" not in about:
        assert set(judged.values()) == {len(gpus) - 1}


def test_gpus_of_two_models_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = burned([HEALTHY, replace(HEALTHY, tflops=350, rise=55)], 10 * MINUTES, tmp_path, monkeypatch)
    assert set(found(report(replies))) == {"burn-straggler", "burn-hotter"}
    assert not found(report(replies, {1: "NVIDIA L40S"}))


def test_a_short_load_says_nothing_about_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sagging = replace(HEALTHY, fade=9)
    judged = report(burned([sagging], 0.2 * MINUTES, tmp_path, monkeypatch))
    assert not found(judged)
    assert {row.id: row for row in judged.checks}["burn-steadiness"].status is Status.SKIP


OTHER = {"others": [{"pid": 7, "name": "train", "mib": 900}]}


@each(
    ["gpu", "words"],
    [
        (VirtualGpu(rise=65), "GPU 0 reached 92 °C, its slowdown temperature"),
        (VirtualGpu(rise=61, throttles=99), ""),  # 91 °C
        (VirtualGpu(counts={"ecc_uncorrected": (100, 1)}), "GPU 0 had an uncorrectable memory error"),
        (VirtualGpu(counts={"ecc_uncorrected": (-500, 1), "ecc_corrected": (100, 1)}, lacks=("ecc_uncorrected",)), ""),
        (VirtualGpu(xids={100: 79}), "GPU 0 reported Xid 79, which is fatal"),
        (VirtualGpu(kernel={100: "NVRM: Xid (PCI:0000:05:00): 48, pid=1"}), "GPU 0 reported Xid 48, which is fatal"),
        (VirtualGpu(kernel={100: "NVRM: Xid (PCI:0000:15:00): 48, pid=1"}), ""),  # of another GPU
        (VirtualGpu(xids={100: 31}), ""),
        (VirtualGpu(events={100: OTHER}), "train (pid 7) began to use GPU 0"),
        (VirtualGpu(events={100: {"others": []}}), ""),
        (VirtualGpu(events={10_000: OTHER}), ""),  # after its end
    ],
)
def test_what_stops_a_load(gpu: VirtualGpu, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / str(len([*tmp_path.iterdir()]))
    file.mkdir()
    replies = burned([gpu], 10 * MINUTES, file, monkeypatch)
    judged = report(replies)
    stopped = [entry.message for entry in judged.diagnosis if entry.problem == "burn-stopped"]
    assert len(stopped) == bool(words)
    assert all(words in message for message in stopped)
    assert ("complete" in replies[0].value) is not bool(words)
    assert replies[0].seconds < 10 * MINUTES + 20 if not words else replies[0].seconds < 10 * MINUTES
    assert {row.id: row for row in judged.checks}["burn"].status is (Status.FAIL if words else Status.PASS)


def test_the_cause_of_a_stop_is_named_and_not_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = watched_report(measured([VirtualGpu(xids={70: 79})], 2 * MINUTES, tmp_path, monkeypatch))
    (entry,) = [entry for entry in judged.diagnosis if entry.check.startswith("burn")]
    assert entry.problem == "xid-79-fallen-off-bus"
    assert "burn" in entry.explains


def test_the_wall_clock_ends_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = burned([HEALTHY], 10 * MINUTES, tmp_path, monkeypatch)
    assert replies[0].value["complete"] == {"seconds": 600.0}
    assert replies[0].seconds == 600


XID = "NVRM: Xid (PCI:0000:05:00): {}, pid=71, name=python3, Ch 00000008"
SXID = "nvidia-nvswitch0: SXid (PCI:0000:a1:00.0): 20034, {}, Link 33 LTSSM Fault Up"
AER = "nvidia 0000:05:00.0: PCIe Bus Error: severity={}, type=Data"
LINE_OF_ANOTHER = "NVRM: Xid (PCI:0000:e5:00): 79, GPU has fallen off the bus."


@each(
    ["gpu", "problem", "words"],
    [
        (VirtualGpu(counts={"nvlink_replay:3": (100, 0.1)}), "nvlink-errors", "link 3: 14 replays, from 1:50 on, 6 a minute"),
        (VirtualGpu(counts={"nvlink_crc:3": (100, 90)}), "", ""),
        (VirtualGpu(counts={"nvlink_crc:3": (100, 110)}), "nvlink-errors", "link 3: 15400 CRC errors"),
        (VirtualGpu(counts={"nvlink_recovered:2": (100, 0.0051)}), "", ""),  # one
        (VirtualGpu(counts={"nvlink_recovered:2": (100, 0.02)}), "nvlink-unstable", "link 2: 2 recoveries"),
        (VirtualGpu(counts={"nvlink_symbol_ber:1": (0, 0)}), "nvlink-unstable", "link 1: bit error rate 2e-08"),
        (VirtualGpu(counts={"nvlink_state:1": (100, -1)}), "nvlink-link-down", "link 1 went down at 1:41, during bf16 products"),
        (VirtualGpu(counts={"pcie_recoveries": (100, 1), "pcie_corrected": (100, 1)}), "", ""),
        (VirtualGpu(counts={"pcie_fatal": (100, 0.0099)}), "pcie-errors-in-log", "1 fatal PCIe error, at 3:22"),
        (VirtualGpu(counts={"ecc_corrected": (100, 1), "ecc_corrected_dram": (100, 0.9)}), "", ""),  # of errors-under-load
        (
            VirtualGpu(events={100: {"pcie_width": 8}}),
            "pcie-width-downgraded",
            "from x16 to x8 lanes at 1:40, during memory patterns",
        ),
        (
            VirtualGpu(events={100: {"pcie_width": 8}, 120: {"pcie_width": 16}}),
            "pcie-width-downgraded",
            "from x16 to x8 lanes at 1:40, during memory patterns, and back again",
        ),
        (VirtualGpu(kernel={100: SXID.format("Fatal")}), "nvswitch-error", "NVSwitch 0000:a1:00 reported SXid 20034 at 1:40"),
        (VirtualGpu(kernel={100: SXID.format("Non-fatal")}), "", ""),
        (
            VirtualGpu(kernel={100: AER.format("Uncorrected (Fatal)")}),
            "pcie-errors-in-log",
            "(Fatal), type=Data at 1:40",
        ),
        (VirtualGpu(kernel={100: AER.format("Corrected")}), "", ""),
        (VirtualGpu(memory_rise=31), "gpu-memory-at-temperature-limit", "memory reached 95 °C"),
        (VirtualGpu(memory_rise=28), "", ""),
        (VirtualGpu(kernel={100: XID.format(13)}), "xid-13-graphics-exception", "Xid 13 at 1:40, during memory patterns"),
        (VirtualGpu(xids={190: 92}), "", ""),  # judged by its counters
        (VirtualGpu(xids={100: 79}), "xid-79-fallen-off-bus", "Xid 79 at 1:40, during memory patterns (GPU has fallen"),
        (VirtualGpu(kernel={100: LINE_OF_ANOTHER}), "", ""),
        (VirtualGpu(xids={100: 94}, kernel={100: XID.format(94)}), "xid-94-contained-ecc", "Xid 94 at 1:40"),
    ],
)
def test_what_is_watched_each_second(
    gpu: VirtualGpu, problem: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / str(len([*tmp_path.iterdir()]))
    folder.mkdir()
    judged = watched_report(measured([gpu], 4 * MINUTES, folder, monkeypatch))
    entries = {entry.problem: entry for entry in judged.diagnosis if entry.check == "burn-errors"}
    assert {*entries} == {problem} - {""}
    for entry in entries.values():
        assert entry.gpu == (None if "nvswitch" in problem else 0)
        assert words in entry.message


def test_what_could_not_be_watched_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = VirtualGpu(lacks=("nvlink_effective_ber", "nvlink_symbol_ber"))
    replies = measured([gpu], MINUTES, tmp_path, monkeypatch)
    row = {row.id: row for row in watched_report(replies).checks}["burn-errors"]
    assert row.status is Status.PASS
    assert "not watched: NVLink bit error rates (not supported by this GPU or its driver)" in row.message
    assert replies["watch:gpu0"].value["calls"] <= 18
    of_links = {id: reply for id, reply in replies.items() if id.startswith("watch:")}
    assert {row.id: row for row in watched_report(of_links).checks}["burn-errors"].status is Status.PASS
    deaf = {**replies["watch:all"].value, "source": "", "why": "kmsg: Operation not permitted"}
    row = {row.id: row for row in watched_report({**replies, "watch:all": Reply("ok", deaf)}).checks}["burn-errors"]
    assert "the kernel log (kmsg: Operation not permitted)" in row.message
    neither = Reply("ok", {**deaf, "events": {"0": "Not Supported"}})
    row = {row.id: row for row in watched_report({**replies, "watch:all": neither}).checks}["burn-errors"]
    assert row.status is Status.SKIP


def test_errors_of_the_memory_are_said_with_place_time_and_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = VirtualGpu(counts={"ecc_corrected": (100, 2), "ecc_corrected_dram": (100, 2), "pcie_replays": (10, 1)})
    replies = measured([gpu], 4 * MINUTES, tmp_path, monkeypatch)
    counters = {"before": {"ecc_corrected": 0, "pcie_replays": 0}, "after": {"ecc_corrected": 280, "pcie_replays": 230}}
    judged = watched_report({**replies, "counters:gpu0": Reply("ok", counters)})
    (entry,) = [entry for entry in judged.diagnosis if entry.check == "errors-under-load"]
    assert "corrected ECC errors rose by 280" in entry.message
    assert "corrected ECC errors from 1:41 on, 121 a minute, during memory patterns, bf16 products (DRAM 280)" in entry.message
    assert "replays" not in entry.message


def test_a_resumed_load_goes_on_where_the_first_part_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []
    for number, gpu in enumerate((VirtualGpu(xids={50: 31}), VirtualGpu(counts={"nvlink_replay:3": (30, 1)}, xids={20: 43}))):
        folder = tmp_path / str(number)
        folder.mkdir()
        parts.append(measured([gpu], 2 * MINUTES, folder, monkeypatch))
    both = resuming.merged(*parts)
    (entry,) = [entry for entry in watched_report(both).diagnosis if entry.problem == "nvlink-errors"]
    assert "link 3: 90 replays, from 2:31 on" in entry.message
    assert [code for _, _, code in both["watch:all"].value["xids"]] == [31, 43]
    assert [at for at, *_ in both["watch:all"].value["xids"]] == [50, 140]
    assert [value["began"] for name, value in both["burn:gpu0"].value.items() if name.startswith("power")][-1] == 230


def test_what_rose_is_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = watched_report(measured([VirtualGpu(counts={"nvlink_replay:3": (30, 1)})], MINUTES, tmp_path, monkeypatch))
    lines = prometheus.render(judged).splitlines()
    assert [line for line in lines if line.startswith("gpudoctor_load_counter_rise{")] == [
        'gpudoctor_load_counter_rise{counter="nvlink_replay",gpu="0",link="3"} 30.0'
    ]
    assert any('what="highest memory temperature"' in line for line in lines)
