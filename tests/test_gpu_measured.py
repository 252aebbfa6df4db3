"""On a machine with a real GPU: what is measured is right, and each thing that is made slow or broken on purpose is named."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_gpu import check, problems, statuses

pytestmark = pytest.mark.gpu

MATRICES = """
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("working", flush=True)
while True:
    for _ in range(50):
        a @ a
    torch.cuda.synchronize()
"""
# Leaves 1.5 GB free, so that a context can be made, but no work be done.
HOG = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total, memory = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(free.value - 1_000_000_000)) == 0
print("working", flush=True)
time.sleep(300)
"""
# What the machine's own packages may really have, however healthy its GPUs are.
OF_SOFTWARE = {"framework-import-fails", "framework-does-not-know-this-numpy"}
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


def gpus() -> int:
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return listed.count("UUID")


needs_two = pytest.mark.skipif(gpus() < 2, reason="needs two GPUs")


def figures(report: Any) -> dict[str, float]:
    """Figure -> value of the first GPU that has it."""
    found: dict[str, float] = {}
    for each in report["measured"]["figures"].values():
        for figure in each:
            found.setdefault(figure["what"], figure["value"])
    return found


@pytest.fixture(scope="module")
def healthy() -> Any:
    return check("--level", "standard")


@pytest.fixture
def beside(request: pytest.FixtureRequest) -> Iterator[int]:
    """A process of somebody else's on the first GPU."""
    with subprocess.Popen([sys.executable, "-c", request.param], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().strip() == "working"
        yield process.pid
        process.kill()
    wait_until_gone(process.pid)


def wait_until_gone(pid: int, seconds: float = 10) -> None:
    """The driver takes its memory back a moment after its process has ended."""
    end = time.monotonic() + seconds
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    while time.monotonic() < end and str(pid) in subprocess.run(query, capture_output=True, text=True).stdout.split():
        time.sleep(0.2)


def test_a_healthy_machine_is_healthy(healthy: Any) -> None:
    quick = problems(check("--level", "quick"))
    assert problems(healthy) - quick <= OF_SOFTWARE
    assert statuses(healthy)["memory-bandwidth"] == "pass"
    assert statuses(healthy)["measurements"] == "pass"


def test_a_saved_run_is_judged_the_same(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    report = check("--only", "memory-bandwidth", "--save", str(file), "--no-redact")
    assert check("--only", "memory-bandwidth", "--replay", str(file)) == report


@pytest.mark.parametrize("beside", [MATRICES], indirect=True, ids=["matrices"])
@needs_torch
def test_contention_is_the_cause(beside: int) -> None:
    assert statuses(check("--gpus", "0", "--only", "memory-bandwidth"))["memory-bandwidth"] == "skip"
    forced = check("--gpus", "0", "--force", "--only", "memory-bandwidth,gemm")
    entries = forced["diagnosis"] + forced["notes"]
    named = [entry for entry in entries if entry["problem"] in ("gpu-shared-while-measured", "other-process-using-gpu")]
    assert any(str(beside) in json.dumps(entry) for entry in named)
    assert "gpu-slower-than-expected" not in {entry["problem"] for entry in entries}


@pytest.mark.parametrize("beside", [HOG], indirect=True, ids=["hog"])
def test_a_hog_is_named(beside: int) -> None:
    report = check("--gpus", "0")
    assert statuses(report)["memory-bandwidth"] == "skip"
    assert any(str(beside) in entry["message"] for entry in report["diagnosis"] + report["notes"])
    forced = check("--gpus", "0", "--force", "--only", "memory-bandwidth,gpu-processes")
    assert problems(forced) <= {"other-process-using-gpu", "measurement-out-of-memory", "gpu-memory-held"}


def test_launch_blocking_explains_what_does_not_overlap() -> None:
    entries = check("--only", "stream-overlap,cuda-environment", environment={"CUDA_LAUNCH_BLOCKING": "1"})["diagnosis"]
    (entry,) = [entry for entry in entries if entry["problem"] == "cuda-launch-blocking-left-on"]
    assert "stream-overlap" in entry["explains"]
    assert {entry["problem"] for entry in entries} == {"cuda-launch-blocking-left-on"}


def test_one_core_is_named() -> None:
    report = check(prefix=("taskset", "-c", "0"))
    assert [name for name in problems(report) if "cpu" in name or "core" in name or "affinity" in name]


@needs_two
@needs_torch
def test_p2p_that_was_switched_off_explains_a_slow_all_reduce() -> None:
    entries = check("--only", "all-reduce,nccl-environment", environment={"NCCL_P2P_DISABLE": "1"})["diagnosis"]
    assert "NCCL_P2P_DISABLE" in json.dumps(entries[0])
    assert "all-reduce" in entries[0]["explains"] or entries[0]["check"] == "all-reduce"


@needs_two
def test_one_gpu_of_two() -> None:
    """Which the user may want: it is named as the cause where more were expected."""
    report = check(
        "--expect-gpus", str(gpus()), "--only", "memory-bandwidth,gpu-count", environment={"CUDA_VISIBLE_DEVICES": "1"}
    )
    assert any("CUDA_VISIBLE_DEVICES" in entry["message"] + str(entry["evidence"]) for entry in report["diagnosis"])
    assert statuses(report)["memory-bandwidth"] == "pass"
    assert {figure["gpu"] for figure in report["measured"]["figures"]["memory-bandwidth"]} == {1}


@pytest.fixture
def running() -> Iterator[subprocess.Popen[str]]:
    """A check that has just begun."""
    command = [sys.executable, "-m", "gpudoctor", "check", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def workload(name: str, seconds: float = 60) -> int:
    """The process that runs a workload on GPU 0, known by where its prints go."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for link in Path("/proc").glob("[0-9]*/fd/2"):
            try:
                if link.readlink().name == f"{name}-gpu0.err":
                    return int(link.parts[2])
            except OSError:
                continue
        time.sleep(0.005)
    raise AssertionError(f"{name} never began")


@pytest.mark.parametrize(
    ("number", "problem", "words"),
    [(signal.SIGSEGV, "measurement-crashed", "SIGSEGV"), (signal.SIGSTOP, "measurement-stopped", "stopped from outside")],
)
def test_a_workload_that_is_hit_takes_only_itself(
    running: subprocess.Popen[str], number: signal.Signals, problem: str, words: str
) -> None:
    os.kill(workload("memory-bandwidth"), number)
    report = json.loads(running.communicate(timeout=200)[0])
    assert [name for name in problems(report) if name.startswith("measurement-")] == [problem], report["diagnosis"]
    (entry,) = [entry for entry in report["diagnosis"] if entry["problem"] == problem]
    assert words in entry["message"]
    assert "memory-bandwidth" in entry["message"]
    assert statuses(report)["gemm"] == "pass"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_cut_off_reports_what_it_has(running: subprocess.Popen[str], number: signal.Signals) -> None:
    workload("kernel-launch")
    running.send_signal(number)
    output, _ = running.communicate(timeout=20)
    report = json.loads(output)
    assert running.returncode == 128 + number
    assert "interrupted" in report["coverage"]["sentence"]
    assert not list(Path(tempfile.gettempdir()).glob("gpudoctor-*"))


def test_nothing_stays_on_the_gpu(healthy: Any) -> None:
    time.sleep(0.5)
    smi = ["nvidia-smi", "--query-compute-apps=pid,name", "--format=csv,noheader"]
    assert subprocess.run(smi, capture_output=True, text=True).stdout.strip() == ""
