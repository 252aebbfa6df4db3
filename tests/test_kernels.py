"""The PTX that workloads load: old enough for every driver, and fit for every GPU from Turing to Blackwell."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudoctor.worker.measuring import driver

SOURCE = Path(driver.__file__).with_name("kernels.cu")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
needs_ptxas = pytest.mark.skipif(not shutil.which("ptxas"), reason="needs ptxas of the CUDA toolkit")


def test_old_drivers_know_this_ptx() -> None:
    assert ".version 6.0\n.target sm_50\n" in driver.kernels()


def test_every_kernel_of_the_source_is_there() -> None:
    source = re.findall(r'extern "C" __global__ void (\w+)\(', SOURCE.read_text())
    assert len(source) >= 10
    assert re.findall(r"\.visible \.entry (\w+)\(", driver.kernels()) == source


@needs_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_assembles(architecture: str, tmp_path: Path) -> None:
    ptx = tmp_path / "kernels.ptx"
    ptx.write_text(driver.kernels())
    done = subprocess.run(["ptxas", "-arch", architecture, str(ptx), "-o", str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
