"""The place of a text limits what is shown to paste, and a replaced PyTorch comes from an index that has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from each import each

from gpudoctor import catalog, doctor, evidence
from gpudoctor.fixes import windows
from gpudoctor.fixes.environment import Environment
from gpudoctor.fixes.packages import restored
from gpudoctor.fixes.pip import parsed
from gpudoctor.knowledge import wheels
from gpudoctor.model import Fix, Report

TEXTS = Path(__file__).parent / "texts"
BASH = re.compile(r"\bsudo\b|\bapt\b|\bdnf\b|\$\(|&&|/etc/|export ")


def judged(text: str) -> Report:
    return doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick"))


COMPILERS = """\
{prompt}gcc --version
gcc (Ubuntu 13.2.0-23ubuntu4) 13.2.0
{prompt}nvcc --version
nvcc: NVIDIA (R) Cuda compiler driver
Cuda compilation tools, release 12.1, V12.1.105
"""


@pytest.mark.parametrize(
    "name",
    ["pair-pip-shows-another-torch-than-python", "pair-collect-env-conda-cpu-build-on-windows", "pair-pypi-torch-on-windows"],
)
def test_a_text_from_windows_gets_lines_for_windows(name: str) -> None:
    text = yaml.load((TEXTS / f"{name}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)["text"]
    fixes = judged(text).diagnosis[0].fixes
    assert fixes
    assert not [line for fix in fixes for line in (fix.command, fix.verify, fix.undo) if BASH.search(line)]


def test_packages_of_linux_are_not_for_windows() -> None:
    linux, here = (judged(COMPILERS.format(prompt=prompt)).diagnosis[0] for prompt in ("$ ", r"C:\Users\me>"))
    assert linux.problem == here.problem == "host-gcc-too-new"
    assert any("apt install" in fix.command for fix in linux.fixes)
    assert not any("apt" in fix.command for fix in here.fixes)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (
            "python -m pip uninstall -y torch && python -m pip install torch",
            ["python -m pip uninstall -y torch\npython -m pip install torch"],
        ),
        ("sudo fuser -v /dev/nvidia*", []),
        ("export A=b", []),
        (r".\python_embeded\python.exe -m pip install torch", [r".\python_embeded\python.exe -m pip install torch"]),
    ],
)
def test_lines_for_windows(command: str, shown: list[str]) -> None:
    assert [fix.command for fix in windows.translated(Fix("Do it", command))] == shown


OLD = """\
$ python -c 'import torch; print(torch.__version__, torch.cuda.is_available())'
{} False
$ nvidia-smi -L
GPU 0: Unknown board (UUID: GPU-1)
"""


@each("version", ["1.12.1+cpu", "2.0.0+cpu", "2.3.1+cpu", "2.7.1+cpu", "2.9.0+cpu"])
def test_the_release_that_is_offered_is_on_the_index_that_is_named(version: str) -> None:
    found = next(entry for entry in judged(OLD.format(version)).diagnosis if entry.problem == "torch-cpu-only-wheel")
    row = wheels.torch_release(str(found.evidence["version"]))
    assert row is not None
    assert row.version == found.evidence["version"]
    assert str(found.evidence["index"]).rpartition("/")[2] in row.variants


UNDO = "python -m pip uninstall -y torch torchvision && python -m pip install "


@each(
    ("torch", "torchvision", "undo"),
    [
        (
            "2.7.1+cpu",
            "0.22.1+cpu",
            UNDO + "torch==2.7.1+cpu torchvision==0.22.1+cpu --index-url https://download.pytorch.org/whl/cpu",
        ),
        ("2.1.2", "0.16.2", UNDO + "torch==2.1.2 torchvision==0.16.2"),
        ("2.1.2", "0.18.1", UNDO + "--no-deps torch==2.1.2 torchvision==0.18.1"),
        ("2.6.0+cu124", "0.21.0+cu126", ""),
        ("2.9.0.dev20250901", "0.24.0", ""),
    ],
)
def test_an_undo_can_work(torch: str, torchvision: str, undo: str) -> None:
    here = Environment(installed={"torch": torch, "torchvision": torchvision}.get, is_listed=True)
    calls = tuple(
        call
        for part in ("python -m pip uninstall -y torch torchvision", "python -m pip install torch torchvision")
        if (call := parsed(part))
    )
    assert restored(calls, here) == undo


OLD_DRIVER = """\
$ nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
GeForce GTX 105..., 461.72
$ conda list torch
# packages in environment at /opt/conda:
#
# Name                    Version                   Build  Channel
pytorch                   1.10.0              py3.8_cpu_0    pytorch
pytorch-mutex             1.0                         cpu    pytorch
torchvision               0.11.1                 py38_cpu    pytorch
"""


def test_the_release_that_is_offered_runs_on_the_driver_and_on_the_python() -> None:
    found = next(entry for entry in judged(OLD_DRIVER).diagnosis if entry.problem == "torch-cpu-only-wheel")
    assert (found.evidence["version"], found.evidence["index"]) == ("2.4.1", "https://download.pytorch.org/whl/cu118")
