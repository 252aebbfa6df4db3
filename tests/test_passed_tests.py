"""What pytest quotes: expected errors of tests that passed count nothing; all others do."""

from __future__ import annotations

import pytest
from each import each

from gpudoctor import catalog, doctor, evidence
from gpudoctor.facts.passed_tests import spans

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 GiB."
TOO_OLD = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."
STARTS = "============================= test session starts =============================="


def problems_of(*lines: str) -> list[str]:
    told = evidence.snapshot_of(evidence.of_text("\n".join(lines) + "\n"))
    return [entry.problem for entry in doctor.judge(told, {"messages": catalog.checks()["messages"]}).diagnosis]


@each(
    ("summary", "found"),
    [
        ("18 passed, 1 skipped, 1 xfailed in 41.87s", []),
        ("======================== 2 passed in 1.20s =========================", []),
        ("=================== 1 failed, 17 passed in 41.87s ===================", ["cuda-out-of-memory"]),
        ("17 passed, 1 error in 3.10s", ["cuda-out-of-memory"]),
        ("Killed", ["cuda-out-of-memory"]),
    ],
)
def test_an_error_counts_unless_all_tests_passed(summary: str, found: list[str]) -> None:
    assert problems_of(STARTS, "tests/test_batch.py ..", OOM, summary) == found


@pytest.mark.parametrize("place", ["before", "after"])
def test_what_stands_beside_the_tests_counts(place: str) -> None:
    tests = [STARTS, "tests/test_batch.py ..", "2 passed in 1.20s"]
    failed = ["$ python train.py", OOM]
    assert problems_of(*(failed + tests if place == "before" else tests + failed)) == ["cuda-out-of-memory"]


def test_warnings_of_tests_that_pass_count() -> None:
    warnings = "=============================== warnings summary ==============================="
    info = "=========================== short test summary info ============================"
    told = problems_of(
        STARTS, "..", OOM, warnings, TOO_OLD, info, "PASSED tests/test_batch.py", OOM, "2 passed, 1 warning in 1.20s"
    )
    assert told == ["driver-too-old-for-runtime"]


def test_each_run_stands_for_itself() -> None:
    lines = ["$ pytest -q", "1 failed in 1.00s", "$ pytest -q", "..   [100%]", "2 passed in 1.20s", "more"]
    assert list(spans(enumerate(lines, 1))) == [(3, 5)]
