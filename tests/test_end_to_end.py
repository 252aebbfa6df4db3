"""The whole program on this machine with stub vendor libraries: whatever they do, there is a report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from limited import gpudoctor
from process import command_lines
from stubs import compile_cuda, compile_nvml
from waiting import until, with_enough_time

from gpudoctor.cli import check as cli_check
from gpudoctor.worker.probes.table import PROBES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("driver")
    compile_nvml(directory)
    compile_cuda(directory)
    return directory


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return gpudoctor(*arguments, env={**os.environ, **environment})


def check(libraries: Path, *arguments: str, **stub: str) -> dict[str, Any]:
    """The JSON report with the stubs as the machine's driver libraries."""
    done = run("check", "--format", "json", *arguments, LD_LIBRARY_PATH=str(libraries), **stub)
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def snapshot_of(libraries: Path, tmp_path: Path, **stub: str) -> dict[str, Any]:
    file = tmp_path / "snapshot.json"
    check(libraries, "--level", "quick", "--save", str(file), **stub)
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


@pytest.mark.parametrize("hanging", ["nvmlDeviceGetTemperature", "nvmlInitWithFlags,cuInit"])
def test_what_hangs_for_good_is_given_up_and_costs_nothing_else(libraries: Path, tmp_path: Path, hanging: str) -> None:
    file = tmp_path / "snapshot.json"

    def others() -> dict[str, str]:
        replies = json.loads(file.read_text())["replies"]
        return {
            id: reply["status"] for id, reply in replies.items() if not id.removeprefix("probe:").startswith(("nvml", "cuda"))
        }

    def checked(seconds: float) -> dict[str, Any]:
        words = ("--format", "json", "--level", "quick", "--timeout", f"{seconds:.0f}", "--save", str(file))
        done = run("check", *words, LD_LIBRARY_PATH=str(libraries), STUB_HANG=hanging)
        assert done.returncode in (0, 1) or "did not start within" in done.stderr, done.stderr
        report: dict[str, Any] = json.loads(done.stdout or "{}")
        return report

    report = with_enough_time(checked, lambda report: report and "timeout" not in others().values())
    assert "timeout" not in others().values()
    assert len([id for id in others() if id.startswith("probe:")]) >= 15
    assert {row["status"] for row in report["checks"]} & {"pass", "skip"}
    assert until(lambda: not command_lines(of=f"STUB_HANG={hanging}"))


def test_a_python_that_does_not_start_in_time_is_not_called_unsuitable(tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    done = run("check", "--python", str(slow), "--timeout", "1")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "did not start within 1 s: --timeout gives it more time" in done.stderr


def test_a_driver_that_hangs_leaves_time_for_what_waits_for_it() -> None:
    """What is asked after it, too, comes to its own limit before that of the whole check."""
    limits = [option.default for option in cli_check.command.params if option.name == "timeout"]
    assert limits == ["20s"]
    own = {probe.name: probe.seconds for probe in PROBES}
    assert max(probe.seconds + own.get(probe.after, 0) for probe in PROBES) < 20


def test_what_was_saved_is_judged_the_same(libraries: Path, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    report = check(libraries, "--level", "quick", "--redact", "--save", str(file), STUB_CODES="nvmlInitWithFlags=18")
    done = run("check", "--format", "json", "--replay", str(file))
    assert json.loads(done.stdout) == report


def test_noise_of_the_environment_does_not_spoil_the_report(libraries: Path, tmp_path: Path) -> None:
    site = tmp_path / "sitecustomize.py"
    site.write_text("import os\nos.write(1, b'hello from sitecustomize\\n')\nprint('more noise')\n")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    report = check(libraries, "--level", "quick", "--python", str(wrapper))
    assert report["checks"]


def test_the_tool_never_imports_a_framework_and_no_redaction_that_nobody_asked_for() -> None:
    code = (
        "import sys; from gpudoctor import catalog, doctor, interpreter; from gpudoctor.cli import check; "
        "from gpudoctor.report import terminal, markdown, json; catalog.checks(); "
        "expensive = 'torch cupy numba triton jax numpy gpudoctor.redaction.structured gpudoctor.redaction.texts'; "
        "print([name for name in expensive.split() if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
