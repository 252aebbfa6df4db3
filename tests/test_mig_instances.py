"""MIG instances, each in a process of its own, on a libcuda that works without a GPU; and the InfoROM's answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_driver_workloads import library  # noqa: F401

from gpudoctor.model import Skip
from gpudoctor.worker.measuring.bench import Bench, read
from gpudoctor.worker.workloads import inforom, mig_instances


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


def refuse(code: int) -> Any:
    def refused(*_: Any) -> Any:
        raise NVMLError(code)

    return refused


def nvml(**changes: Any) -> Any:
    """One GPU without MIG, and one with instances at places 0 and 2, of which the second is in use."""
    answers: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByPciBusId": lambda address: 0,
        "nvmlDeviceGetMigMode": lambda gpu: [1, 1] if gpu else refuse(3)(),
        "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, place: f"{place}" if place in (0, 2) else refuse(6)(),
        "nvmlDeviceGetComputeRunningProcesses": lambda instance: ["python"] if instance == "2" else [],
        "nvmlDeviceGetUUID": lambda instance: f"MIG-{instance}",
        "nvmlDeviceGetName": lambda instance: "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "nvmlDeviceValidateInforom": lambda handle: None,
    }
    return SimpleNamespace(**{**answers, **changes})


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, library: Path) -> pytest.MonkeyPatch:  # noqa: F811
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def run(tmp_path: Path) -> dict[str, Any]:
    mig_instances.run(Bench(str(tmp_path / "results"), [0]))
    return read(str(tmp_path / "results")).values


def test_each_instance_in_its_own_process(given: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Any] = []
    right = subprocess.run

    def noted(*command: Any, **more: Any) -> Any:
        seen.append(more["env"]["CUDA_VISIBLE_DEVICES"])
        return right(*command, **more)

    given.setattr(subprocess, "run", noted)
    values = run(tmp_path)
    assert seen == ["MIG-0"]
    about = {"gpu": 1, "device": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}
    assert values["MIG-2"] == {"left_alone": "in use", **about}
    measured = values["MIG-0"]
    assert (measured["wrong_words"], measured["multiprocessors"], measured["bytes"]) == (0, 4, (1 << 30) // 4)
    assert measured["gb_per_s"] > 0


def test_an_instance_without_a_context_is_told_with_its_error(given: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given.setenv("WORKING_CODES", "cuInit=100")
    assert "cuInit: CUDA_ERROR_TEST (100)" in run(tmp_path)["MIG-0"]["error"]


def test_instances_that_may_belong_to_others_are_left_alone(given: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given.setenv("CUDA_VISIBLE_DEVICES", "MIG-2")
    with pytest.raises(Skip, match="left alone"):
        run(tmp_path)
    given.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetMigMode=lambda gpu: [0, 0]))
    with pytest.raises(Skip, match="no GPU has MIG"):
        run(tmp_path)


@pytest.mark.parametrize(("code", "outcome"), [(0, 0), (14, 14), (3, Skip.UNSUPPORTED), (4, Skip.NOT_PERMITTED)])
def test_what_nvml_says_of_the_inforom(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, outcome: Any) -> None:
    changes = {"nvmlDeviceValidateInforom": refuse(code)} if code else {}
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**changes))
    monkeypatch.setattr(inforom, "Driver", lambda gpu: SimpleNamespace(bus_id=lambda: "0000:a0:00.0"))
    bench = Bench(str(tmp_path / "results"), [0])
    if isinstance(outcome, str):
        with pytest.raises(Skip) as skip:
            inforom.run(bench)
        assert skip.value.kind == outcome
        assert "checksums" not in read(str(tmp_path / "results")).values
    else:
        inforom.run(bench)
        assert read(str(tmp_path / "results")).values["checksums"]["code"] == outcome
