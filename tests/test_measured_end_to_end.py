"""The whole program on a libcuda that works without a GPU: what is measured is in the report, also of a run that was cut off."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from each import each
from limited import gpudoctor
from process import Process, command_lines
from stand_in import run
from stubs import compile_working
from waiting import HOPELESS_SECONDS, until

pytestmark = pytest.mark.slow

CHECK = ["check", "--format", "json"]
COMMAND = [sys.executable, "-m", "gpudoctor", *CHECK]
HANGING = {"WORKING_HANG": "cuMemcpyHtoDAsync_v2"}  # of the first transfer to the GPU


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("working")
    compile_working(directory)
    return directory


@pytest.fixture
def environment(library: Path, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(library), "TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}


def runs(report: Any) -> dict[str, Any]:
    found: dict[str, Any] = report["measured"]["runs"]
    return found


def test_what_is_measured_is_in_the_report_and_in_that_of_what_was_saved(environment: dict[str, str], tmp_path: Path) -> None:
    only, file = ("--only", "kernel-launch,allocation"), str(tmp_path / "saved.json")
    done = gpudoctor(*CHECK, *only, "--save", file, env=environment)
    report = json.loads(done.stdout)
    again = gpudoctor(*CHECK, *only, "--replay", file, env=environment)
    assert json.loads(again.stdout)["measured"] == report["measured"]
    assert "single" in runs(report)["kernel-launch:gpu0"]
    assert set(runs(report)) == {"kernel-launch:gpu0", "allocation:gpu0"}


def test_a_quick_check_measures_nothing(environment: dict[str, str]) -> None:
    done = gpudoctor(*CHECK, "--level", "quick", env=environment)
    assert runs(json.loads(done.stdout)) == {}


def test_a_gpu_that_is_not_there_cannot_be_measured(environment: dict[str, str]) -> None:
    done = gpudoctor(*CHECK, "--gpus", "3", env=environment)
    assert done.returncode == 2
    assert done.stderr == "Error: --gpus 3: CUDA lists only the GPUs 0\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_cut_off_reports_what_it_has(environment: dict[str, str], tmp_path: Path, number: signal.Signals) -> None:
    saved = tmp_path / "cut.json"
    command = [*COMMAND, "--only", "kernel-launch,host-transfers", "--save", str(saved)]
    with Process(command, stdout=subprocess.PIPE, text=True, env={**environment, **HANGING}) as process:
        assert until(lambda: list(tmp_path.glob("gpudoctor-*/measured/host-transfers-gpu0")))
        process.send_signal(number)
        output, _ = process.communicate(timeout=HOPELESS_SECONDS)
    assert process.returncode == 128 + number
    assert "kernel-launch:gpu0" in runs(json.loads(output))
    measured = json.loads(saved.read_text())["measured"]
    assert measured["host-transfers:gpu0"]["status"] == "cut"
    assert not list(tmp_path.glob("gpudoctor-*"))


def test_the_time_for_measurements_is_kept(environment: dict[str, str], tmp_path: Path) -> None:
    saved = tmp_path / "cut.json"
    only = ("--only", "host-transfers", "--measure-timeout", "1")
    gpudoctor(*CHECK, *only, "--save", str(saved), env={**environment, **HANGING})
    cut = [reply["detail"] for reply in json.loads(saved.read_text())["measured"].values() if reply["status"] == "cut"]
    assert any("--measure-timeout" in detail for detail in cut)


@each(
    ("arguments", "words"),
    [
        (["--gpus", "a"], "is not a list of GPU numbers"),
        (["--gpus", ","], "is not a list of GPU numbers"),
        (["--measure-timeout", "0"], "--measure-timeout"),
        (["--baseline", "/nonexistent"], "cannot read /nonexistent"),
        (["--replay", "x", "--force"], "--force cannot be used with it"),
        (["--replay", "x", "--gpus", "0"], "--gpus cannot be used with it"),
        (["--replay", "x", "--measure-timeout", "5"], "--measure-timeout cannot be used with it"),
    ],
)
def test_wrong_arguments_get_one_clear_line(arguments: list[str], words: str) -> None:
    done = run("check", "--format", "json", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


TORCH = """
import os, pathlib, time
__version__ = "9"
if "PYTORCH_CUDA_ALLOC_CONF" in os.environ:
    raise RuntimeError("Unrecognized key 'foo' in the settings of the allocator")
if "HANGS" in os.environ:
    pathlib.Path(os.environ["HANGS"]).touch()
    time.sleep(600)
files = [open("/dev/null") for _ in range(300)]
"""
BROKEN = {"PYTORCH_CUDA_ALLOC_CONF": "foo:1"}


@pytest.fixture
def with_torch(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A home whose profile sets the variable, and a Python whose only torch refuses it and opens many files."""
    venv.create(tmp_path / "venv", symlinks=True)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "torch.py").write_text(TORCH)
    (tmp_path / ".bashrc").write_text("export PYTORCH_CUDA_ALLOC_CONF=foo:1\n")
    own = {"PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path), "VIRTUAL_ENV": str(tmp_path / "venv")}
    return {**environment, **own}


IMPORT = [*COMMAND, "--only", "framework-imports,gemm,experiments"]


@pytest.mark.parametrize(
    ("variables", "limit", "problem", "fix"),
    [
        (BROKEN, None, "variable-breaks-programs", "unset PYTORCH_CUDA_ALLOC_CONF"),
        ({}, 256, "limit-breaks-programs", "ulimit -n hard"),
    ],
)
def test_a_cause_is_proved_by_experiment(
    with_torch: dict[str, str], variables: dict[str, str], limit: int | None, problem: str, fix: str
) -> None:
    def few_files() -> None:
        if limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    environment = {**with_torch, **variables}
    done = subprocess.run(IMPORT, capture_output=True, text=True, env=environment, preexec_fn=few_files)
    (entry,) = json.loads(done.stdout)["diagnosis"]
    assert (entry["problem"], entry["confidence"]) == (problem, "confirmed")
    assert entry["fixes"][0]["command"] == fix
    assert "framework-imports" in entry["explains"]
    assert (".bashrc:1" in entry["message"]) == bool(variables)
    if variables:
        without = gpudoctor(*IMPORT[3:], "--no-experiments", env=environment)
        assert problem not in without.stdout


def test_experiments_that_are_cut_off_leave_nothing_behind(with_torch: dict[str, str], tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    command = [*IMPORT, "--save", str(tmp_path / "cut.json")]
    with Process(command, stdout=subprocess.PIPE, text=True, env={**with_torch, **BROKEN, "HANGS": str(hangs)}) as process:
        assert until(hangs.exists)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=HOPELESS_SECONDS)
    assert process.returncode == 130
    assert json.loads(output)["diagnosis"]
    assert json.loads((tmp_path / "cut.json").read_text())["experiments"]["import:torch"]["value"]["ended"]
    assert not list(tmp_path.glob("gpudoctor-*"))
    assert until(lambda: not command_lines(str(hangs)))
