"""CTranslate2 needs libraries of one CUDA release; what uses it decides how bad it is that they are missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import machine
import pytest

from checks.python import ctranslate2
from gpudoctor.facts import Facts
from gpudoctor.model import Finding, Reply, Skip, Status

CASE = "faster-whisper-with-only-cuda-13"


def found(without: tuple[str, ...] = (), more: tuple[str, ...] = (), **changed: Any) -> list[Finding]:
    taken = machine.load(CASE)
    packages = [dict(row) for row in taken.replies["packages"].value if row["name"] not in without]
    for row in packages:
        if row["name"] == "ctranslate2":
            row.update(changed)
    packages += [{"name": name, "version": "9.14.0", "location": packages[0]["location"]} for name in more]
    return list(ctranslate2.judge(Facts(replace(taken, replies={**taken.replies, "packages": Reply("ok", packages)}))))


def test_without_a_program_that_takes_the_gpu_it_is_a_warning() -> None:
    (finding,) = found(without=("faster-whisper", "faster_whisper"))
    assert finding.problem.status is Status.WARN


def test_a_program_that_takes_the_gpu_fails() -> None:
    (finding,) = found()
    assert finding.problem.status is Status.FAIL
    assert finding.evidence["wheels"] == ["nvidia-cublas-cu12", "nvidia-cudnn-cu12==9.*"]


def test_no_cudnn_wheel_beside_that_of_another_cuda() -> None:
    (finding,) = found(more=("nvidia_cudnn_cu13",))
    assert finding.evidence["wheels"] == ["nvidia-cublas-cu12"]


def test_an_old_release_needs_an_older_cuda() -> None:
    (finding,) = found(version="3.24.0")
    assert finding.message == "ctranslate2 3.24.0 needs libcublas.so.11 (here: libcublas.so.13)"


@pytest.mark.parametrize("changed", [{"version": "5.0.0"}, {"installer": "conda"}])
def test_other_builds_are_not_judged(changed: dict[str, Any]) -> None:
    with pytest.raises(Skip):
        found(**changed)
