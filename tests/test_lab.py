"""The lab does what it says: what other tests stand on. How a request for GPUs fails is in test_container_failures.py."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from typing import Any

import lab_registry
import pytest
from lab_daemons import Daemon
from lab_gpus import Machine
from lab_podman import Podman
from lab_registry import Registry

pytestmark = pytest.mark.docker


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True)


def on(machine: Machine, *command: str, **options: Any) -> str:
    return subprocess.run(machine.argv(*command, **options), capture_output=True, text=True, check=True).stdout


def test_bare_has_no_python(bare: str) -> None:
    done = docker("run", "--rm", "--network=none", bare, "sh", "-c", "command -v python3 || echo none")
    assert done.stdout == "none\n"


def test_ngc_says_what_it_is_and_what_it_lacks(ngc: str) -> None:
    done = docker("run", "--rm", "--network=none", ngc, "sh", "-c", "echo $NVIDIA_CPU_ONLY; pwd")
    assert "NVIDIA Release 24.08" in done.stdout
    assert "The NVIDIA Driver was not detected" in done.stdout
    assert "SHMEM allocation limit" in done.stdout
    assert done.stdout.endswith("1\n/workspace\n")


def test_ngc_turns_forward_compatibility_on(gpu_daemon: Daemon, lab_machine: Machine, ngc: str) -> None:
    ask = "import ctypes; v = ctypes.c_int(); ctypes.CDLL('libcuda.so.1').cuDriverGetVersion(ctypes.byref(v)); print(v.value)"
    command = ("run", "--rm", "--gpus=all", gpu_daemon.load(ngc), "python3", "-c", ask)
    assert gpu_daemon.docker(*command).stdout.endswith("\n13000\n")
    lab_machine.set(driver="535.104.05")
    said = gpu_daemon.docker(*command).stdout
    assert "Using CUDA 12.6 driver version 560.35.03 with kernel driver version 535.104.05." in said
    assert said.endswith("\n12060\n")


def test_the_registry_answers(registry: Registry) -> None:
    with urllib.request.urlopen(f"http://{registry.host}/v2/_catalog") as answer:
        assert set(json.load(answer)["repositories"]) >= {"nvidia/cuda", "nvidia/pytorch"}


def test_a_registry_can_want_a_login_and_stop(bare: str) -> None:
    with lab_registry.registry(login=True) as own:
        command = ("docker", "pull", f"{own.host}/nvidia/cuda:12.6.0-base-ubuntu24.04")
        assert "no basic auth credentials" in subprocess.run(command, capture_output=True, text=True).stderr
        own.stop()
        assert "connection refused" in subprocess.run(command, capture_output=True, text=True).stderr


def test_the_machine_has_the_gpus_it_was_given(lab_machine: Machine) -> None:
    lab_machine.set(gpus=3, driver="550.54.15")
    assert len(on(lab_machine, "nvidia-smi", "-L").splitlines()) == 3
    assert "550.54.15" in on(lab_machine, "cat", "/proc/driver/nvidia/version")
    files = {"/etc/docker/daemon.json": "{}", "/etc/new/folder/file": "text"}
    assert on(lab_machine, "cat", *files, files=files) == "{}text"
    assert "libcuda.so.1" in on(lab_machine, "ldconfig", "-p")


@pytest.mark.parametrize("request_", [("--gpus=all",), ("--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=all")])
def test_a_gpu_request_brings_gpus(gpu_daemon: Daemon, bookworm: str, request_: tuple[str, ...]) -> None:
    done = gpu_daemon.docker("run", "--rm", *request_, gpu_daemon.load(bookworm), "nvidia-smi", "-L")
    assert len(done.stdout.splitlines()) == 2


def test_some_of_the_gpus_can_be_asked_for(gpu_daemon: Daemon, lab_machine: Machine, bookworm: str) -> None:
    lab_machine.set(gpus=4)
    done = gpu_daemon.docker("run", "--rm", "--gpus", '"device=0,2"', gpu_daemon.load(bookworm), "nvidia-smi", "-L")
    assert [line.partition("UUID: ")[2][:12] for line in done.stdout.splitlines()] == ["GPU-00000000", "GPU-00000002"]


def test_gpus_can_get_lost_on_the_way(gpu_daemon: Daemon, lab_machine: Machine, bookworm: str) -> None:
    lab_machine.set(gpus=8, given=7)
    command = ("run", "--rm", "--gpus=all", gpu_daemon.load(bookworm))
    assert len(gpu_daemon.docker(*command, "nvidia-smi", "-L").stdout.splitlines()) == 7
    lab_machine.set(silent=True)
    assert gpu_daemon.docker(*command, "sh", "-c", "echo /dev/nvidia*").stdout == "/dev/nvidia*\n"


def test_what_an_image_requires_is_compared(gpu_daemon: Daemon, lab_machine: Machine, bookworm: str) -> None:
    lab_machine.set(driver="535.104.05")
    requirement = "--env=NVIDIA_REQUIRE_CUDA=cuda>=12.6 brand=tesla,driver>=600"
    command = ("run", "--rm", "--gpus=all", requirement, gpu_daemon.load(bookworm), "true")
    assert "unsatisfied condition: cuda>=12.6" in gpu_daemon.docker(*command).stderr
    lab_machine.set(driver="560.35.03")
    assert gpu_daemon.docker(*command).returncode == 0


def test_cdi_devices_arrive(cdi_daemon: Daemon, lab_machine: Machine, bookworm: str) -> None:
    lab_machine.set(gpus=3)
    load = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0), ctypes.CDLL('libnvidia-ml.so.1').nvmlInitWithFlags(0))"
    command = ("run", "--rm", "--init", "--device", "nvidia.com/gpu=all", cdi_daemon.load(bookworm))
    assert len(cdi_daemon.docker(*command, "nvidia-smi", "-L").stdout.splitlines()) == 3
    assert cdi_daemon.docker(*command, "python3", "-c", load).stdout == "0 0\n"
    found = json.loads(cdi_daemon.docker("info", "--format", "{{json .}}").stdout).get("DiscoveredDevices")
    assert found is None or {device["ID"] for device in found} == {f"nvidia.com/gpu={name}" for name in ("0", "1", "2", "all")}


def test_a_cdi_device_that_is_not_there(cdi_daemon: Daemon, lab_machine: Machine, bookworm: str) -> None:
    done = cdi_daemon.docker("run", "--rm", "--device", "nvidia.com/gpu=7", cdi_daemon.load(bookworm), "true")
    assert "unresolvable CDI devices nvidia.com/gpu=7" in done.stderr


def test_podman_gives_cdi_devices(podman: Podman, bookworm: str) -> None:
    command = ("run", "--rm", "--device", "nvidia.com/gpu=all", podman.load(bookworm), "nvidia-smi", "-L")
    assert len(podman.run(*command).stdout.splitlines()) == 2
    without = podman.run(*command, files={})
    assert without.returncode == 126
    assert "unresolvable CDI devices nvidia.com/gpu=all" in without.stderr
