"""The error in which a text ends is told; one that a program survived is not."""

from __future__ import annotations

import pytest
from each import each

from gpudoctor import catalog, doctor, evidence

TRACEBACK = "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    main()\nKeyError: 'labels'\n"
QUIET = "".join(f"worker {number} has read its shard of the corpus and waits for the others\n" for number in range(9000))


def found(text: str) -> list[str]:
    report = doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick"))
    return [entry.problem for entry in report.diagnosis]


@pytest.mark.parametrize("text", [TRACEBACK, QUIET + TRACEBACK, TRACEBACK + "Prompt executed in 3.04 seconds\n"])
def test_error_at_the_end_is_told(text: str) -> None:
    assert found(text) == ["program-raised-error"]


@each(
    "text",
    [
        TRACEBACK + "skipping this sample\n",
        TRACEBACK + "step 120 loss=0.31\n",
        TRACEBACK + QUIET,
        "Exception ignored in: <function Queue.__del__>\n" + TRACEBACK,
        "ERROR:    Exception in ASGI application\n" + TRACEBACK,
        "KeyError: 'labels'\n",
    ],
    ids=["skipped", "goes-on", "goes-on-quietly", "ignored", "one-request", "no-traceback"],
)
def test_error_that_was_survived_is_not_told(text: str) -> None:
    assert found(text) == []


def test_missing_module_is_to_be_installed() -> None:
    text = TRACEBACK.replace("KeyError: 'labels'", "ModuleNotFoundError: No module named 'einops'")
    report = doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick"))
    assert report.diagnosis[0].fixes[0].command.endswith("-m pip install einops")
