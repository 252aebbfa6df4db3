"""Nothing is disturbed that runs: who is on a GPU, by a real NVML and by open device files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import machine
import pytest
from stubs import compile_nvml
from terminal import Terminal

from gpudoctor.facts import Facts
from gpudoctor.repair import busy

pytestmark = pytest.mark.slow

HARMLESS = "nccl-shm-leftovers"  # its fix interrupts jobs, and needs no root


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("driver")
    compile_nvml(directory)
    return directory


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "100"])
    yield process
    process.kill()
    process.wait()


def opened(libraries: Path, tmp_path: Path, values: str) -> Terminal:
    home = {"XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb", "HOME": str(tmp_path)}
    stub = {"LD_LIBRARY_PATH": str(libraries), "STUB_VALUES": values}
    return Terminal([sys.executable, "-m", "gpudoctor", "fix", HARMLESS, "--run"], {**os.environ, **home, **stub}, tmp_path)


def test_a_process_on_the_gpu_is_named_and_left_alone(libraries: Path, tmp_path: Path, worker: subprocess.Popen[bytes]) -> None:
    terminal = opened(libraries, tmp_path, f"nvmlDeviceGetComputeRunningProcesses_v3={worker.pid}")
    terminal.expect(r"\$ .*nccl-")
    terminal.expect(rf"Not run: it would interrupt sleep \(pid {worker.pid}\) on GPU 0; stop that first")
    terminal.expect("Step .* skipped")
    terminal.wait()
    terminal.close()
    assert "Run it" not in terminal.seen
    assert worker.poll() is None


def test_once_it_has_ended_the_question_comes(libraries: Path, tmp_path: Path) -> None:
    terminal = opened(libraries, tmp_path, "")
    terminal.expect("Run it")
    terminal.type("n\n")
    terminal.wait()
    terminal.close()
    assert "Not run" not in terminal.seen


def process(root: Path, pid: int, name: str, *files: str) -> None:
    (root / f"proc/{pid}/fd").mkdir(parents=True)
    (root / f"proc/{pid}/comm").write_text(name + "\n")
    for number, file in enumerate(files):
        (root / f"proc/{pid}/fd/{number}").symlink_to(file)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    process(tmp_path, 1, "systemd", "/dev/null")
    process(tmp_path, 7, "nvidia-persiste", "/dev/nvidia0")
    return tmp_path


def test_where_nvml_fails_the_open_device_files_tell(root: Path) -> None:
    assert busy.by_open_files(root) == []
    process(root, 4242, "python", "/dev/null", "/dev/nvidia-uvm", "/dev/nvidia0")
    assert busy.by_open_files(root) == ["python (pid 4242), which has /dev/nvidia0 open"]


def test_without_an_answer_of_nvml_those_count(root: Path) -> None:
    process(root, 4242, "python", "/dev/nvidia0")
    mismatched = Facts(machine.load("driver-library-version-mismatch"))
    assert busy.users(mismatched, root) == ["python (pid 4242), which has /dev/nvidia0 open"]


def test_what_only_root_can_see_is_not_nothing(root: Path) -> None:
    class Hidden(type(root)):  # type: ignore[misc]
        def iterdir(self):  # type: ignore[no-untyped-def]
            raise PermissionError

    assert busy.by_open_files(Hidden(root)) == [busy.NOT_SEEN]


def test_without_a_device_nobody_is_on_it(tmp_path: Path) -> None:
    process(tmp_path, 4242, "python", "/dev/null")
    assert busy.by_open_files(tmp_path) == []
