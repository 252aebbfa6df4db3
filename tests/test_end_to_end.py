"""The whole program on this machine with stub vendor libraries: whatever they do, there is a report in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from stubs import compile_cuda, compile_nvml

pytestmark = pytest.mark.xdist_group("end_to_end")

QUICK_SECONDS = 20.0


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("driver")
    compile_nvml(directory)
    compile_cuda(directory)
    return directory


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpudoctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)


def check(libraries: Path, *arguments: str, **stub: str) -> tuple[dict[str, Any], float]:
    """The JSON report, and how long it took, with the stubs as the machine's driver libraries."""
    start = time.monotonic()
    done = run("check", "--format", "json", *arguments, LD_LIBRARY_PATH=str(libraries), **stub)
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report, time.monotonic() - start


@pytest.fixture(scope="module", autouse=True)
def hanging(libraries: Path) -> Iterator[Future[tuple[dict[str, Any], float]]]:
    """A check with default limits, which mostly waits: beside the other tests of this file."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(check, libraries, STUB_HANG="nvmlInitWithFlags,cuInit")


def snapshot_of(libraries: Path, tmp_path: Path, **stub: str) -> dict[str, Any]:
    file = tmp_path / "snapshot.json"
    check(libraries, "--save", str(file), **stub)
    replies: dict[str, Any] = json.loads(file.read_text())["replies"]
    return replies


def test_a_getter_that_crashes_costs_only_itself(libraries: Path, tmp_path: Path) -> None:
    replies = snapshot_of(libraries, tmp_path, STUB_CRASH="nvmlDeviceGetPowerUsage")
    gpu = replies["nvml:gpu0"]["value"]
    assert gpu["PowerUsage"] == {"died": True}
    assert gpu["Name"]
    assert "MemoryInfo" in gpu


def test_a_lost_gpu_leaves_the_others(libraries: Path, tmp_path: Path) -> None:
    stub = {"STUB_VALUES": "nvmlDeviceGetCount_v2=2", "STUB_CODES": "nvmlDeviceGetHandleByIndex_v2@1=15"}
    replies = snapshot_of(libraries, tmp_path, **stub)
    assert replies["nvml:gpu1"]["value"] == {"handle_error": 15}
    assert replies["nvml:gpu0"]["value"]["Name"]


@pytest.mark.parametrize("hanging", ["nvmlInitWithFlags", "nvmlDeviceGetTemperature", "cuInit"])
def test_with_a_probe_that_hangs_for_good_the_report_is_complete_in_time(libraries: Path, hanging: str) -> None:
    report, seconds = check(libraries, "--timeout", "3", STUB_HANG=hanging)
    assert seconds < 8  # which is the limit of the probe alone
    assert report["checks"]
    assert {row["status"] for row in report["checks"]} & {"pass", "skip"}


def test_what_was_saved_is_judged_the_same(libraries: Path, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    report, _ = check(libraries, "--save", str(file), STUB_CODES="nvmlInitWithFlags=18")
    done = run("check", "--format", "json", "--replay", str(file))
    assert json.loads(done.stdout) == report


def test_noise_of_the_environment_does_not_spoil_the_report(libraries: Path, tmp_path: Path) -> None:
    site = tmp_path / "sitecustomize.py"
    site.write_text("import os\nos.write(1, b'hello from sitecustomize\\n')\nprint('more noise')\n")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    report, _ = check(libraries, "--python", str(wrapper))
    assert report["checks"]


def test_the_tool_never_imports_a_framework() -> None:
    code = (
        "import sys; from gpudoctor import catalog, doctor, interpreter; from gpudoctor.cli import check; "
        "from gpudoctor.report import terminal, markdown, json; catalog.checks(); "
        "print([name for name in ('torch', 'cupy', 'numba', 'triton', 'jax', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_with_default_limits_a_hanging_driver_is_reported_within_the_promised_time(
    hanging: Future[tuple[dict[str, Any], float]],
) -> None:
    report, seconds = hanging.result()
    assert seconds < QUICK_SECONDS + 2
    assert report["status"] == "fail"
