"""What programs print about their environment, and lists of packages, become the answers of the probes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor import catalog, doctor, evidence
from gpudoctor.evidence.readers import collect_env, python_packages
from gpudoctor.facts import Facts
from gpudoctor.model import Report, Unavailable

H100 = (Path(__file__).parent / "evidence" / "h100.collect_env.txt").read_text()


def facts(text: str) -> Facts:
    return Facts(evidence.snapshot_of(evidence.of_text(text)))


def report(text: str) -> Report:
    found = doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick"))
    assert not [row for row in found.checks if row.status.value == "error"]
    return found


def problems(text: str) -> list[str]:
    return [entry.problem for entry in report(text).diagnosis]


def test_torch_collect_env() -> None:
    known = facts(H100)
    assert (known.python.torch_version, known.python.torch_cuda) == ("2.11.0+cu130", "13.0")
    assert (known.python.version, known.python.libc) == ((3, 12, 3), (2, 39))
    assert known.python.packages["nvidia-cudnn-cu13"][0].version == "9.19.0.56"
    assert known.python.conda_packages == {}
    assert (known.system.distribution, known.system.distribution_version, known.system.family) == ("ubuntu", "24.04", "debian")
    assert (known.system.kernel, known.system.architecture, known.system.wsl) == ("6.18.44", "x86_64", 0)
    assert (known.nvml.driver_version, known.nvml.count, known.nvml.gpus[0].name) == ("580.159.04", 1, "NVIDIA H100 80GB HBM3")
    assert (known.cuda.driver_version, known.cuda.init_code) == ((13, 0), 0)
    assert problems(H100) == []


def test_what_it_does_not_tell_is_not_there() -> None:
    with pytest.raises(Unavailable):
        _ = facts(H100).python.prefix


RENAMED = [
    ("Ubuntu 24.04.3 LTS (x86_64)", "Red Hat Enterprise Linux 8.8 (Ootpa) (x86_64)", ("rhel", "8.8", "rhel")),
    ("Ubuntu 24.04.3 LTS (x86_64)", "Debian GNU/Linux 12 (bookworm) (x86_64)", ("debian", "12", "debian")),
    ("Ubuntu 24.04.3 LTS (x86_64)", "Arch Linux (x86_64)", ("arch", "", "arch")),
    ("Ubuntu 24.04.3 LTS (x86_64)", "Linux Mint 21.3 (x86_64)", ("linuxmint", "21.3", "debian")),
]


@pytest.mark.parametrize(("old", "new", "expected"), RENAMED)
def test_distributions(old: str, new: str, expected: tuple[str, str, str]) -> None:
    system = facts(H100.replace(old, new)).system
    assert (system.distribution, system.distribution_version, system.family) == expected


def test_system_that_is_not_known_is_not_told() -> None:
    with pytest.raises(Unavailable):
        facts(H100.replace("Ubuntu 24.04.3 LTS (x86_64)", "Microsoft Windows 11 Pro")).system.distribution  # noqa: B018


def test_wsl_shows_in_the_kernel() -> None:
    text = H100.replace("Linux-6.18.44-x86_64", "Linux-5.15.153.1-microsoft-standard-WSL2-x86_64")
    assert facts(text).system.wsl == 2


def test_torch_for_the_cpu() -> None:
    text = H100.replace("2.11.0+cu130", "2.11.0+cpu").replace("build PyTorch: 13.0", "build PyTorch: None")
    assert facts(text).python.torch_cuda is None
    assert problems(text.replace("CUDA available: True", "CUDA available: False")) == ["torch-cpu-only-wheel"]


def test_driver_older_than_the_wheel() -> None:
    text = H100.replace("580.159.04", "550.54.15").replace("CUDA available: True", "CUDA available: False")
    (entry,) = report(text).diagnosis
    assert (entry.problem, entry.evidence["least_driver"]) == ("driver-too-old-for-runtime", "580.65.06")
    assert any("cu1" in fix.command for fix in entry.fixes)


def test_older_driver_that_works_all_the_same_is_no_finding() -> None:
    assert problems(H100.replace("580.159.04", "550.54.15")) == []  # a forward-compatibility package is in use


def test_gpu_without_code_in_the_wheel() -> None:
    assert problems(H100.replace("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB")) == ["torch-missing-gpu-architecture"]


VLLM = """\
Collecting environment information...
==============================
        System Info
==============================
OS                           : Ubuntu 22.04.5 LTS (x86_64)
Libc version                 : glibc-2.35

==============================
       PyTorch Info
==============================
PyTorch version              : 2.7.0+cu128
CUDA used to build PyTorch   : 12.8

==============================
      Python Environment
==============================
Python version               : 3.12.10 (main, Apr  9 2025, 08:55:05) [GCC 11.4.0] (64-bit runtime)
Python platform              : Linux-6.6.72+-x86_64-with-glibc2.35

==============================
       CUDA / GPU Info
==============================
Is CUDA available            : True
GPU models and configuration :
GPU 0: NVIDIA L4
GPU 1: NVIDIA L4

Nvidia driver version        : 570.124.06

==============================
Versions of relevant libraries
==============================
[pip3] torch==2.7.0
[pip3] nvidia-nccl-cu12==2.26.2
[conda] torch                     2.7.0                    pypi_0    pypi
[conda] cuda-cudart               12.8.90                  h5888daf_1    conda-forge
==============================
         vLLM Info
==============================
vLLM Version                 : 0.9.0.1
==============================
     Environment Variables
==============================
LD_LIBRARY_PATH=/usr/local/nvidia/lib64
CUDA_VISIBLE_DEVICES=0
HF_TOKEN=hf_secret
"""


def test_vllm_collect_env() -> None:
    known = facts(VLLM)
    assert (known.nvml.count, known.nvml.gpus[1].compute_capability) == (2, (8, 9))
    assert known.python.packages["vllm"][0].version == "0.9.0.1"
    assert list(known.python.conda_packages) == ["cuda-cudart"]
    assert known.environment.variables == {"CUDA_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}


OTHERS = {
    "transformers": (
        "- `transformers` version: 4.46.0\n- Platform: Linux-5.15.0-1064-azure-x86_64-with-glibc2.31\n- Python version: 3.10.14\n"
        "- PyTorch version (GPU?): 2.4.0+cu121 (True)\n- GPU type: NVIDIA A100 80GB PCIe\n",
        ("transformers", "4.46.0", "2.4.0+cu121", "12.1", "5.15.0-1064-azure"),
    ),
    "bitsandbytes": (
        "=================== bitsandbytes v0.49.0 ===================\nPlatform: Linux-6.8.0-1-generic-x86_64-with-glibc2.35\n"
        "  libc: glibc-2.35\nPython: 3.11.9\nPyTorch: 2.5.1+cu124\n  CUDA: 12.4\n",
        ("torch", "2.5.1+cu124", "2.5.1+cu124", "12.4", "6.8.0-1-generic"),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_reports(name: str) -> None:
    text, (package, version, torch, cuda, kernel) = OTHERS[name]
    known = facts(text)
    assert known.python.packages[package][0].version == version
    assert (known.python.torch_version, known.python.torch_cuda, known.system.kernel) == (torch, cuda, kernel)


def test_jax() -> None:
    text = (
        "jax:    0.4.30\njaxlib: 0.4.30\nnumpy:  1.26.4\npython: 3.10.12 (main) [GCC 11.4.0]\n"
        "jax.devices (1 total, 1 local): [CpuDevice(id=0)]\n"
        "platform: uname_result(system='Linux', node='n', release='5.15.0-112-generic', version='#1', machine='x86_64')\n"
    )
    known = facts(text)
    versions = {name: copies[0].version for name, copies in known.python.packages.items()}
    assert versions == {"jax": "0.4.30", "jaxlib": "0.4.30", "numpy": "1.26.4"}
    assert (known.system.kernel, known.python.version) == ("5.15.0-112-generic", (3, 10, 12))


def test_pip_list_tells_the_cuda_of_torch_by_its_runtime() -> None:
    text = """\
Package                  Version
------------------------ ----------
numpy                    1.26.4
nvidia-cuda-runtime-cu12 12.4.127
torch                    2.5.1
my-project               0.1.0      /home/somebody/project
"""
    known = facts(text)
    assert (known.python.torch_version, known.python.torch_cuda) == ("2.5.1", "12.4")
    assert set(known.python.packages) == {"numpy", "nvidia-cuda-runtime-cu12", "torch", "my-project"}


def test_pip_freeze_with_wheels_by_address() -> None:
    text = (
        "nvidia-cublas-cu12==12.4.5.8\nnumpy==2.1.0\n"
        "torch @ https://download.pytorch.org/whl/cpu/torch-2.5.1%2Bcpu-cp311-cp311-linux_x86_64.whl\nflash-attn @ file:///wheels\n"
    )
    assert facts(text).python.torch_cuda is None
    assert "flash-attn" not in facts(text).python.packages


def test_conda_list() -> None:
    text = """\
# packages in environment at /opt/conda/envs/ml:
#
# Name                    Version                   Build  Channel
cudatoolkit               11.8.0               h6a678d5_0    nvidia
python                    3.10.14         h955ad1f_1
pytorch                   2.1.0           py3.10_cuda11.8_cudnn8.7.0_0    pytorch
requests                  2.31.0                   pypi_0    pypi
"""
    known = facts(text)
    assert (known.python.torch_version, known.python.torch_cuda) == ("2.1.0", "11.8")
    assert known.python.conda_packages["cudatoolkit"].channel == "nvidia"
    assert "requests" not in known.python.conda_packages


def test_one_pinned_line_is_no_list() -> None:
    assert python_packages.read("torch==2.1.0\n") is None
    assert collect_env.read("Collecting environment information...\nnothing\n") is None


def test_two_lists_are_joined_by_name() -> None:
    known = facts(H100 + "\n```\n" + "nvidia-cublas-cu12==1.0\nnumpy==1.0\ntriton==9.9\n")
    assert {name: known.python.packages[name][0].version for name in ("numpy", "triton", "torch")} == {
        "numpy": "1.0",
        "triton": "9.9",
        "torch": "2.11.0",
    }
