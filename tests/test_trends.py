"""Rates of error counters: between two moments, over a reboot and a reset, in diff, and with the counters of the baseline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import pytest
from click.testing import CliRunner
from each import each

from gpudoctor import catalog, doctor
from gpudoctor.cli import main
from gpudoctor.facts import Facts, counters
from gpudoctor.facts.counters import Counters
from gpudoctor.files import baseline, snapshot
from gpudoctor.judging import trends
from gpudoctor.model import Reply, Snapshot, Status

DAY = 86400.0


def moment(day: int, values: dict[str, int], boot: str = "a", uptime: float | None = None) -> dict[str, Counters]:
    return {"GPU-1": Counters(f"2026-11-{day:02}T00:00:00Z", boot, uptime, 3, values)}


@each(
    ("earlier", "later", "said"),
    [
        (moment(1, {"PCIe replays": 10}), moment(3, {"PCIe replays": 34}), ("0.5 per hour", 24, "", False)),
        (moment(1, {"PCIe replays": 10}), moment(2, {"PCIe replays": 11531}), ("480 per hour", 11521, "", True)),
        (moment(1, {"PCIe replays": 10}), moment(2, {"PCIe replays": 11530}), ("480 per hour", 11520, "", False)),
        (moment(1, {"PCIe replays": 99}), moment(3, {"PCIe replays": 24}, "b", DAY), ("1 per hour", 24, "boot", False)),
        (moment(1, {"PCIe replays": 99}, ""), moment(3, {"PCIe replays": 48}, "", DAY), ("2 per hour", 48, "boot", False)),
        (moment(1, {"PCIe replays": 9}, ""), moment(3, {"PCIe replays": 57}, "", 9 * DAY), ("1 per hour", 48, "", False)),
        (moment(1, {"PCIe replays": 99}), moment(3, {"PCIe replays": 48}), ("1 per hour", 48, "reset", False)),
        (moment(1, {"NVLink recoveries": 1}), moment(3, {"NVLink recoveries": 3}), ("1 per day", 2, "", False)),
        (moment(1, {"NVLink recoveries": 1}), moment(3, {"NVLink recoveries": 4}), ("1.5 per day", 3, "", True)),
        (
            moment(1, {"uncorrectable ECC errors": 7}),
            moment(9, {"uncorrectable ECC errors": 8}, "b", 90),
            ("0.125 per day", 1, "", True),
        ),
        (moment(1, {"PCIe recoveries": 7}), moment(2, {"PCIe recoveries": 419_007}), ("419,000 per day", 419_000, "", False)),
        (moment(1, {"remapped rows": 7}), moment(9, {"remapped rows": 8}), ("0.125 per day", 1, "", False)),
    ],
)
def test_rates(earlier: dict[str, Counters], later: dict[str, Counters], said: tuple[str, int, str, bool]) -> None:
    [rate] = trends.rates(earlier, later)
    assert (rate.words, rate.rose, rate.since, rate.limit is not None, rate.gpu) == (*said, 3)


@each(
    ("earlier", "later"),
    [
        (moment(1, {"PCIe replays": 1}), moment(1, {"PCIe replays": 9})),  # the same moment
        (moment(3, {"PCIe replays": 1}), moment(1, {"PCIe replays": 9})),  # the other way round
        (moment(1, {"PCIe replays": 1}), moment(3, {"PCIe recoveries": 9})),
        (moment(1, {"corrected ECC errors": 9}), moment(3, {"corrected ECC errors": 1})),  # cleared
        (moment(1, {"PCIe replays": 1}), moment(3, {"PCIe replays": 9}, "b", 20.0)),  # a boot just now
        ({"GPU-2": moment(1, {"PCIe replays": 1})["GPU-1"]}, moment(3, {"PCIe replays": 9})),
    ],
)
def test_what_cannot_be_compared_has_no_rate(earlier: dict[str, Counters], later: dict[str, Counters]) -> None:
    assert list(trends.rates(earlier, later)) == []


@each("given", [{}, {"values": 3, "taken": "x"}, {"values": {}}, {"values": {"a": 1}, "taken": 5}])
def test_other_forms_are_no_counters(given: dict[str, Any]) -> None:
    assert counters.kept(given) is None


def later_by_a_day(taken: Snapshot, replays: int) -> Snapshot:
    gpu = taken.replies["nvml:gpu0"]
    fields = {**gpu.value["FieldValues"], "PCIE_REPLAY_COUNTER": replays}
    changed = Reply("ok", {**gpu.value, "PcieReplayCounter": replays, "FieldValues": fields})
    return replace(
        taken,
        taken="2026-11-22T03:00:00Z",
        replies={**taken.replies, "nvml:gpu0": changed, "file:/proc/uptime": Reply("ok", "200000 1\n")},
    )


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = machine.load("h200-x2-measured")
    (tmp_path / "a.json").write_bytes(snapshot.dump(first))
    (tmp_path / "b.json").write_bytes(snapshot.dump(later_by_a_day(first, 48)))
    (tmp_path / "c.json").write_bytes(snapshot.dump(later_by_a_day(first, 48000)))
    return tmp_path


@pytest.mark.slow
def test_diff_shows_the_rates_in_either_order(two: Path) -> None:
    line = "GPU 0 PCIe replays: 0 to 48, 2 per hour"
    for names in (("a.json", "b.json"), ("b.json", "a.json")):
        done = CliRunner().invoke(main, ["diff", *(str(two / name) for name in names)])
        assert (line in done.output, "unusually fast" in done.output) == (True, False), done.output
    done = CliRunner().invoke(main, ["diff", str(two / "a.json"), str(two / "c.json"), "--format", "json"])
    [rate] = json.loads(done.output)["rates"]
    assert (done.exit_code, rate["rose"], rate["seconds"], rate["counter"]) == (1, 48000, DAY, "PCIe replays")


def test_check_compares_with_the_counters_of_the_baseline(two: Path) -> None:
    saved = CliRunner().invoke(main, ["baseline", "save", str(two / "a.json"), "--force"])
    assert saved.exit_code == 0, saved.output
    assert baseline.counters()
    path = str(baseline.default_path())
    for name, status in (("b.json", "pass"), ("c.json", "warn"), ("a.json", "skip")):
        given = ["check", "--replay", str(two / name), "--baseline", path, "--only", "error-trends", "--format", "json"]
        report = json.loads(CliRunner().invoke(main, given).output)
        assert {row["id"]: row["status"] for row in report["checks"]}["error-trends"] == status


def test_without_counters_nothing_passes() -> None:
    taken = machine.load("h200-x2")
    report = doctor.judge(taken, doctor.select(catalog.checks(), "quick", ["error-trends"]))
    assert {row.id: row.status for row in report.checks}["error-trends"] is Status.SKIP
    assert counters.of(Facts(machine.load("no-gpu"))) == {}
