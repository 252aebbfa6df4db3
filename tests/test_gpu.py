"""On a machine with a real GPU: what is healthy is called healthy, and what is broken on purpose is found."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from stubs import compile_cuda

pytestmark = pytest.mark.gpu

# Takes a third of the first GPU's memory through the driver alone, says so, and waits to be killed.
HOLD_MEMORY = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total, memory = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(total.value // 3)) == 0
print("holding", flush=True)
time.sleep(120)
"""


def check(*arguments: str, prefix: tuple[str, ...] = (), environment: Mapping[str, str] | None = None, **options: Any) -> Any:
    """The JSON report of the whole program."""
    command = [*prefix, sys.executable, "-m", "gpudoctor", "check", "--format", "json", *arguments]
    merged = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=merged, timeout=300, **options)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def quick(*arguments: str, **options: Any) -> Any:
    """As `check`, without measuring."""
    return check("--level", "quick", *arguments, **options)


def problems(report: Any) -> set[str]:
    return {entry["problem"] for entry in report["diagnosis"]}


def statuses(report: Any) -> dict[str, str]:
    return {row["id"]: row["status"] for row in report["checks"]}


def test_nothing_is_invented(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    report = quick("--save", str(file), "--no-redact")
    assert set(statuses(report).values()) <= {"pass", "skip", "warn"}
    for name in ("gpu-on-bus", "nvml", "gpu-count", "cuda-init", "cuda-context"):
        assert statuses(report)[name] == "pass"
    assert check("--level", "quick", "--replay", str(file)) == report


def test_a_dead_uuid_in_cuda_visible_devices_is_the_only_new_problem() -> None:
    healthy = problems(quick())
    broken = problems(quick(environment={"CUDA_VISIBLE_DEVICES": "GPU-dead"}))
    assert broken - healthy == {"cuda-visible-devices-unknown-gpu"}


def test_a_stub_libcuda_first_in_ld_library_path(tmp_path: Path) -> None:
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    compile_cuda(stubs)
    path = f"{stubs}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    report = quick(environment={"LD_LIBRARY_PATH": path, "STUB_CODES": "cuInit=34"})
    assert "stub-libcuda-loaded" in problems(report)


@pytest.fixture
def holder() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", HOLD_MEMORY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().strip() == "holding"
        yield process.pid
        process.kill()


def test_a_process_that_holds_memory_is_named(holder: int) -> None:
    report = quick()
    entries = [entry for entry in report["diagnosis"] + report["notes"] if entry["problem"] == "other-process-using-gpu"]
    assert any(str(holder) in entry["message"] for entry in entries)


def test_a_cpu_only_torch_in_a_venv(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    metadata = next(venv.glob("lib/python*/site-packages")) / "torch-2.11.0+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cpu\n")

    assert "torch-cpu-only-wheel" in problems(quick("--python", str(venv)))


def test_a_small_memlock_limit() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    assert "memlock-limited" in problems(quick(preexec_fn=limit))


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
def test_a_missing_nvidiactl() -> None:
    """As a user without rights: as root the driver's library makes the node again."""
    hide = (
        "d=$(mktemp -d) && chmod 755 $d && mount -t tmpfs -o mode=755 none $d && "
        "cp -a /dev/null /dev/zero /dev/urandom /dev/random /dev/nvidia0 /dev/nvidia-uvm $d/ && mount --rbind $d /dev && "
        'exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"'
    )
    report = quick(prefix=("unshare", "-m", "sh", "-c", hide, "sh"))
    assert report["status"] == "fail"
    assert "device-nodes-missing" in problems(report)
    assert statuses(report)["cuda-init"] == "blocked"


def test_the_quick_check_leaves_no_process_on_the_gpu() -> None:
    quick()
    time.sleep(0.5)
    smi = ["nvidia-smi", "--query-compute-apps=name", "--format=csv,noheader"]
    assert "gpudoctor" not in subprocess.run(smi, capture_output=True, text=True).stdout
