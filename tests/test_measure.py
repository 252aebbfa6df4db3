"""What is measured where, what is left alone and why, and the baseline."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import pytest
from stand_in import run
from test_judging import memory, taken

from gpudoctor import catalog, doctor, measure, planning
from gpudoctor.checkup import Checkup, saved
from gpudoctor.errors import UserError
from gpudoctor.files import baseline, snapshot
from gpudoctor.model import Reply, Snapshot
from gpudoctor.report import markdown, terminal, words

CHECKS = {id: check for id, check in catalog.checks().items() if id == "memory-bandwidth"}


def pair(**change: Any) -> Snapshot:
    """Two H100, the first with other answers."""
    return taken(memory(), memory(), replies={"nvml:gpu0": change} if change else None)


def process(mib: int, name: str | None = "python", pid: int = 77) -> list[dict[str, Any]]:
    return [{"pid": pid, "usedGpuMemory": mib << 20, "name": name, "ours": True}]


def indices(plan: planning.Plan) -> list[int]:
    return [gpu[0] for gpu in plan.gpus]


def test_all_free_gpus_are_measured() -> None:
    plan = planning.plan(pair(), CHECKS)
    assert indices(plan) == [0, 1]
    assert plan.workloads == {"memory-bandwidth": "memory-bandwidth"}
    assert plan.left_alone == {}


def test_a_busy_gpu_is_left_alone_and_says_for_whom() -> None:
    busy = pair(ComputeRunningProcesses=process(57000))
    plan = planning.plan(busy, CHECKS)
    assert indices(plan) == [1]
    assert "python (pid 77) holds 57000 MiB" in plan.left_alone[0]
    assert indices(planning.plan(busy, CHECKS, force=True)) == [0, 1]


def test_a_desktop_does_not_make_a_gpu_busy() -> None:
    assert indices(planning.plan(pair(GraphicsRunningProcesses=process(900, "Xorg")), CHECKS)) == [0, 1]


@pytest.mark.parametrize(
    "hidden", [{"UtilizationRates": {"gpu": 87, "memory": 40}}, {"MemoryInfo_v2": {"used": 30 << 30}}], ids=["at work", "idle"]
)
def test_work_of_another_container_counts_too(hidden: dict[str, Any]) -> None:
    plan = planning.plan(pair(**hidden), CHECKS)
    assert indices(plan) == [1]
    assert "cannot be seen from here" in plan.left_alone[0]


def test_only_the_named_gpus() -> None:
    assert indices(planning.plan(pair(), CHECKS, only=(1,))) == [1]
    with pytest.raises(UserError, match=r"--gpus 7: CUDA lists only the GPUs 0, 1"):
        planning.plan(pair(), CHECKS, only=(7,))


def test_a_gpu_without_a_context_is_left_alone() -> None:
    broken = pair()
    replies = {**broken.replies, "cuda:context1": Reply("ok", {"code": 46, "name": "CUDA_ERROR_DEVICE_UNAVAILABLE", "text": ""})}
    plan = planning.plan(replace(broken, replies=replies), CHECKS)
    assert indices(plan) == [0]
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in plan.left_alone[1]


def test_cuda_numbers_gpus_in_another_order() -> None:
    base = pair()
    first, second = base.replies["cuda:devices"].value
    swapped = [dict(second, handle=0), dict(first, handle=1)]
    plan = planning.plan(replace(base, replies={**base.replies, "cuda:devices": Reply("ok", swapped)}), CHECKS)
    assert [gpu[:2] for gpu in plan.gpus] == [(0, 1), (1, 0)]


def test_without_a_driver_nothing_is_measured() -> None:
    plan = planning.plan(machine.load("nouveau"), CHECKS)
    assert plan.gpus == ()
    assert plan.left_alone


def test_a_busy_machine_is_skipped_naming_the_process() -> None:
    busy = taken(memory(), replies={"nvml:gpu0": {"ComputeRunningProcesses": process(57000)}})
    plan = planning.plan(busy, CHECKS)
    judged = replace(busy, measured={"plan": Reply("ok", plan.as_value())})
    report = doctor.judge(judged, doctor.select(catalog.checks(), "standard"))
    (row,) = [row for row in report.checks if row.id == "memory-bandwidth"]
    assert row.reason == "busy"
    assert "pid 77" in row.message
    assert "skipped because the GPU is busy" in report.coverage.sentence


def test_a_gpu_that_was_left_alone_beside_others_is_said() -> None:
    """That the others are healthy says nothing about it."""
    both = taken(memory(), memory(), replies={"nvml:gpu1": {"ComputeRunningProcesses": process(500)}})
    plan = planning.plan(both, CHECKS)
    measured = {"plan": Reply("ok", plan.as_value()), "memory-bandwidth:gpu0": both.measured["memory-bandwidth:gpu0"]}
    checks = doctor.select(catalog.checks(), "standard", ["memory-bandwidth"])
    report = doctor.judge(replace(both, measured=measured), checks)
    assert "Not everything was measured" in words.headline(report)
    for rendered in (terminal.render(report), markdown.render(report)):
        assert "Not measured: GPU 1 is busy" in rendered


class Dying:
    """A target whose process ends after a first result."""

    def run(self, job: dict[str, Any], hear: Any, patience: float) -> int:
        hear({"measured": "memory-bandwidth:gpu0", "reply": vars(Reply("ok", memory()))})
        return 0


def test_a_worker_that_ends_early_is_a_finding() -> None:
    plan = planning.plan(pair(), CHECKS)
    target: Any = Dying()
    measured, _ = measure.measure(target, plan, "standard", 10, lambda running, left, seen: None)
    report = doctor.judge(replace(pair(), measured=measured), doctor.select(catalog.checks(), "standard", ["measurements"]))
    assert [entry.problem for entry in report.diagnosis] == ["measurement-crashed"]


def test_what_a_cut_off_run_left_out_is_said() -> None:
    cut = taken(memory())
    measured = {**cut.measured, "gemm:gpu0": Reply("cut", None, "the run was cut off before this began")}
    report = doctor.judge(replace(cut, measured=measured), doctor.select(catalog.checks(), "standard"))
    rows = {row.id: row for row in report.checks}
    assert rows["memory-bandwidth"].status.value == "pass"
    assert rows["gemm"].reason == "cut off"
    assert "because the run was interrupted" in report.coverage.sentence


def test_an_area_that_was_cut_off_is_not_shown_as_passed_whole() -> None:
    report = doctor.judge(machine.load("cut-off-by-ctrl-c"), doctor.select(catalog.checks(), "standard"))
    assert re.search(r"frameworks \(\d+ skipped\)", " ".join(terminal.render(report).split()))


def test_baseline_saved_shown_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "healthy.json"
    file.write_bytes(snapshot.dump(taken(memory())))
    assert run("baseline", "show").exit_code == 2
    saved = run("baseline", "save", str(file))
    assert saved.exit_code == 0
    assert "figures of 1 GPU in" in saved.output
    shown = run("baseline", "show").output
    assert "memory read" in shown
    assert "3057" in shown
    slower = tmp_path / "slower.json"
    slower.write_bytes(snapshot.dump(taken(memory(0.88))))
    saved_file = tmp_path / "state" / "gpudoctor" / "baseline.json"
    report = json.loads(run("check", "--replay", str(slower), "--baseline", str(saved_file), "--format", "json").output)
    assert "saved baseline" in report["diagnosis"][0]["message"]


def test_a_baseline_of_a_redacted_snapshot_is_of_the_real_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    uuid = "GPU-5e1f3a20-4a71-4c2e-9b1f-7d2a91c04f10"
    data = saved(Checkup(snapshot=taken(memory(), replies={"nvml:gpu0": {"UUID": uuid}})).redacted())
    assert uuid.encode() not in data
    (tmp_path / "redacted.json").write_bytes(data)
    assert run("baseline", "save", str(tmp_path / "redacted.json")).exit_code == 0
    assert [*baseline.load()] == [uuid]


def test_a_baseline_keeps_gpus_that_were_not_measured_this_time(tmp_path: Path) -> None:
    checks = doctor.select(catalog.checks(), "standard")
    both = baseline.of(pair(), doctor.judge(pair(), checks))
    one = taken(memory())
    merged = baseline.merged(both, baseline.of(one, doctor.judge(one, checks)))
    assert len(both.gpus) == len(merged.gpus) == 2
    assert len(baseline.of(one, doctor.judge(one, checks)).gpus) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "is not a gpudoctor baseline"),
        (b'{"schema": "\xff"}', "is not a gpudoctor baseline"),
        (b'{"schema": "x/9", "gpus": {}}', "is not a baseline that this version can read"),
    ],
)
def test_a_broken_baseline_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "baseline.json"
    file.write_bytes(content)
    result = run("baseline", "show", "--file", str(file))
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_sick_machine_makes_no_baseline_unless_forced(tmp_path: Path) -> None:
    file, kept = tmp_path / "slow.json", tmp_path / "baseline.json"
    file.write_bytes(snapshot.dump(taken(memory(0.5))))
    refused = run("baseline", "save", str(file), "--file", str(kept))
    assert refused.exit_code == 2
    assert "gpu-slower-than-expected" in refused.stderr
    assert not kept.exists()
    assert run("baseline", "save", str(file), "--file", str(kept), "--force").exit_code == 0


def test_a_damaged_baseline_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    damaged = baseline.default_path()
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{bad")
    result = run("check", "--level", "quick", "--only", "temporary-space", "--format", "json")
    assert json.loads(result.stdout)["checks"]
    assert "is not a gpudoctor baseline" in result.stderr
    file = tmp_path / "healthy.json"
    file.write_bytes(snapshot.dump(taken(memory())))
    assert run("baseline", "save", str(file)).exit_code == 0
    assert run("baseline", "show").exit_code == 0


@pytest.mark.parametrize("place", ["/dev/full", "/proc/nope/baseline.json"])
def test_a_place_that_takes_no_baseline_is_named(tmp_path: Path, place: str) -> None:
    file = tmp_path / "healthy.json"
    file.write_bytes(snapshot.dump(taken(memory())))
    result = run("baseline", "save", str(file), "--file", place)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"Error: cannot write {place}")


def test_what_was_not_measured_is_said() -> None:
    """A snapshot of level quick that is judged at level standard."""
    report = doctor.judge(machine.load("h100"), doctor.select(catalog.checks(), "standard"))
    assert "not measured" in report.coverage.sentence
    assert {row.reason for row in report.checks if row.id in ("gemm", "memory-bandwidth")} == {"not measured"}
    assert "got no answer or measurement" in words.headline(report)


def test_a_cause_is_as_bad_as_the_worst_that_it_explains() -> None:
    case = machine.load("gpus-sum-wrong-through-acs")
    report = doctor.judge(case, doctor.select(catalog.checks(), "full"))
    assert {entry.status.value for entry in report.diagnosis} == {"fail"}


def test_a_quick_snapshot_makes_no_baseline(tmp_path: Path) -> None:
    file = tmp_path / "quick.json"
    file.write_bytes(snapshot.dump(machine.load("h100")))
    result = run("baseline", "save", str(file))
    assert result.exit_code == 2
    assert "the snapshot contains no measurements" in result.stderr
