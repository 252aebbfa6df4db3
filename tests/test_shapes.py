"""An answer of another type than the code expects is an error of that answer, and of nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import pytest
from each import each

from gpudoctor import doctor
from gpudoctor.facts import Facts, shapes
from gpudoctor.files import opening, snapshot
from gpudoctor.model import Reply, Snapshot, Status, Unavailable

H100 = machine.load("h100-measured")


WRONG = [
    ("uname", {"machine": ["x86_64"]}, "Expected str | null, got array - at .machine"),
    ("environment", "PATH=/bin", "Expected object | null, got str"),
    ("file:/proc/version", 5, "Expected str | null, got int"),
    ("glob:/dev/nvidia*", ["/dev/nvidia0", {}], "got object - at [1]"),
    ("command:lspci", {"code": 0, "out": 5, "err": ""}, "got int - at .out"),
    ("packages", [{"name": "torch", "requires": "numpy"}], "got str - at [0].requires"),
    ("nvml:gpu3", [], "Expected object | null, got array"),
    ("measured plan", {"gpus": [0], "left_alone": 3}, "got int - at .left_alone"),
    ("measured gemm:gpu0", {"fp16": {"tflops": "many"}}, "got str - at [...].tflops"),
    ("command", None, "Expected object, got null"),
    ("command", {"line": None}, "got null - at .line"),
    ("job-hang", None, "Expected object, got null"),
    ("job-hang", {"ras": [{"report": {"communicators": [{"size": "2"}]}}]}, "at .ras[0].report.communicators[0].size"),
]


@each(("question", "value", "why"), WRONG)
def test_another_type_is_an_error_of_that_answer(question: str, value: object, why: str) -> None:
    found = shapes.fitting(question, Reply("ok", value, seconds=1.5))
    assert (found.status, found.value, found.seconds) == ("error", None, 1.5)
    assert found.detail.startswith("the answer has an unexpected form: ")
    assert found.detail.endswith(why)


@pytest.mark.parametrize("value", [{"machine": None}, {}, {"machine": "x86_64", "colour": {"of": ["the", "case"]}}, None])
def test_missing_empty_and_unknown_fields_are_kept(value: object) -> None:
    reply = Reply("ok", value)
    assert shapes.fitting("uname", reply) is reply
    assert shapes.fitting("a-question-of-a-later-version", Reply("ok", 5)).value == 5


def test_an_empty_text_that_is_no_text_is_null() -> None:
    found = shapes.fitting("tmp", Reply("ok", {"bytes": 5, "writable": True, "free_bytes": "", "noexec": ""}))
    assert found.value == {"bytes": 5, "writable": True, "free_bytes": None, "noexec": None}
    assert shapes.fitting("environment", Reply("ok", {"LD_LIBRARY_PATH": ""})).value == {"LD_LIBRARY_PATH": ""}


@pytest.mark.parametrize("case", ["cupy-multiple-packages", "torch-toolkit-other-major", "workstation"])
def test_empty_texts_for_null_change_no_verdict(case: str) -> None:
    taken = machine.load(case)
    packages = [{key: "" if value is None else value for key, value in one.items()} for one in taken.replies["packages"].value]
    blank = shapes.all_fitting({**taken.replies, "packages": Reply("ok", packages)})
    before, after = (doctor.judge_at_its_level(replace(taken, replies=replies)) for replies in (taken.replies, blank))
    assert [entry.problem for entry in after.diagnosis] == [entry.problem for entry in before.diagnosis]


def opened(tmp_path: Path, taken: Snapshot, **changed: Any) -> Snapshot:
    plain = json.loads(snapshot.dump(taken))
    for question, value in changed.items():
        plain["replies"][question]["value"] = value
    (tmp_path / "machine.json").write_text(json.dumps(plain))
    return opening.taken_in(str(tmp_path / "machine.json"))


def test_a_file_with_one_wrong_answer_is_judged_without_it(tmp_path: Path) -> None:
    taken = opened(tmp_path, H100, environment=["PATH"])
    assert taken.replies["environment"].status == "error"
    assert {question for question in taken.replies if taken.replies[question] != H100.replies[question]} == {"environment"}
    rows = {row.id: row for row in doctor.judge_at_its_level(taken).checks}
    assert rows["cuda-environment"].status is Status.SKIP
    assert "unexpected form" in rows["cuda-environment"].message
    assert Status.ERROR not in {row.status for row in rows.values()}


def test_a_fact_that_cannot_be_read_from_its_answer_is_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"GPU 0: PciInfo.busId has an unexpected form"):
        Facts(_with({"nvml:gpu0": {"PciInfo": {"busId": "pci.bus_id"}}})).nvml.gpus[0].bus_id  # noqa: B018
    with pytest.raises(Unavailable, match=r"Pci.functions: its answer has an unexpected form \(KeyError"):
        Facts(_with({"pci": {"functions": {"0000:01:00.0": {}}, "bridges": {}, "other_display": []}})).pci.gpus  # noqa: B018
    with pytest.raises(Unavailable, match="MemoryInfo of a MIG device is unknown"):
        Facts(_with({"nvml:gpu0": {"MigDevices": [{"GpuInstanceId": 1, "ComputeInstanceId": 0}]}})).nvml.gpus[0].mig_devices  # noqa: B018


def _with(replies: dict[str, object]) -> Snapshot:
    return replace(H100, replies={**H100.replies, **{question: Reply("ok", value) for question, value in replies.items()}})


def test_an_integer_that_no_counter_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="more than 64 bits"):
        opened(tmp_path, H100, cpus={"count": 10**30})


def test_a_kind_that_is_no_text_does_not_break_the_report() -> None:
    measured = {**H100.measured, "gemm:gpu0": Reply("skipped", {"kind": {"a": "b"}})}
    assert doctor.judge_at_its_level(replace(H100, measured=measured), "standard").coverage.skipped


def test_a_result_that_looks_like_one_that_fitted_is_checked_where_its_types_do_not_say_all() -> None:
    fits: dict[str, Any] = {"tflops": 1.0, "environment": {"A": "b"}}
    results: dict[str, Any]
    value: Any
    for value in (fits, {"tflops": 1.0}, {"tflops": True, "during": {"any": [1]}}, {}, None):
        assert shapes.fitting("measured gemm:gpu0", Reply("ok", value and {"fp16": value})).status == "ok"
    for value in ({**fits, "environment": {"A": 1}}, {"tflops": "1"}, {"tflops": True, "during": []}, 1):
        results = {"fp16": {"tflops": 1.0}, "bf16": value}
        assert shapes.fitting("measured gemm:gpu0", Reply("ok", results)).status == "error", value
    assert {shapes.fitting("measured gemm:gpu0", Reply("ok", value)).status for value in ([], [1], 0)} == {"error"}


def test_a_measured_result_or_counter_that_is_null_is_missing() -> None:
    bandwidth = {**H100.measured["memory-bandwidth:gpu0"].value, "buffer": None, "copy": {}}
    counters = {"before": {"ecc_corrected": 1}, "after": {"ecc_corrected": None}}
    replies = {"memory-bandwidth:gpu0": Reply("ok", bandwidth), "counters:gpu0": Reply("ok", counters)}
    measured = shapes.all_measured_fitting({**H100.measured, **replies})
    assert "buffer" not in measured["memory-bandwidth:gpu0"].value
    assert measured["counters:gpu0"].value["after"] == {}
    rows = {row.id: row for row in doctor.judge_at_its_level(replace(H100, measured=measured)).checks}
    assert Status.ERROR not in {row.status for row in rows.values()}
    assert "unexpected form (KeyError: 'wrong_elements')" in rows["memory-bandwidth"].message


@each("name", ["settings", "calls", "device", "memory", "compiled", "shapes"])
def test_a_part_of_a_profile_of_another_type_costs_what_it_shows(name: str) -> None:
    taken = machine.load("profiled-cudnn-benchmark-with-changing-shapes")
    value = taken.replies["job-profile"].value
    wrong = [{"operator": "conv", "shapes": 9, "some": [[1]]}] if name == "shapes" else 5
    ranks = [{**rank, name: wrong} for rank in value["ranks"]]
    odd = replace(taken, replies={**taken.replies, "job-profile": Reply("ok", {**value, "ranks": ranks})})
    assert Status.ERROR not in {row.status for row in doctor.judge_at_its_level(odd).checks}
