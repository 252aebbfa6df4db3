"""Every rule of `gpudoctor burn` over time, on virtual GPUs: it fires, and just below its limit it stays silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import machine
import pytest
from each import each
from virtual_gpus import VirtualGpu, burned

from gpudoctor import doctor
from gpudoctor.choices import BURN
from gpudoctor.model import Reply, Report, Status

MINUTES = 60.0
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
    return doctor.judge_at_its_level(replace(taken, replies={**taken.replies, **renamed}, measured=measured, level=BURN))


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
        (VirtualGpu(events={100: {"ecc_uncorrected": 2}}), "GPU 0 had an uncorrectable memory error"),
        (VirtualGpu(events={100: {"ecc_uncorrected": 1}}), ""),  # from before the load
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


def test_the_wall_clock_ends_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = burned([HEALTHY], 10 * MINUTES, tmp_path, monkeypatch)
    assert replies[0].value["complete"] == {"seconds": 600.0}
    assert replies[0].seconds == 600
