"""Each known way in which a container gets no GPU, provoked on a real engine: gpudoctor names the problem and a fix.

The GPUs, the driver and NVIDIA's toolkit are the lab's (tests/lab.py); engines and their messages are real. What cannot be
provoked here (SELinux, Docker from a snap, a rootless daemon's cgroups) is tested with its message in test_container_start.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import lab_daemons
import lab_docker28
import lab_images
import pytest
from forked import run
from lab_daemons import Daemon
from lab_gpus import Machine
from lab_podman import Podman

pytestmark = pytest.mark.docker

SPECIFICATION = "/etc/cdi/nvidia.yaml"


@dataclass(frozen=True)
class Refused:
    """What `gpudoctor run` made of a container that did not start."""

    code: int
    text: str

    @property
    def problem(self) -> str:
        return self.text.rstrip().rpartition("More: gpudoctor explain ")[2]

    @property
    def said(self) -> str:
        """The engine's words, in one line."""
        return " ".join(self.text.partition("Its message:")[2].partition("\n\n")[0].split())

    @property
    def fixes(self) -> str:
        return self.text.partition("\nFix: ")[2]


class Doctor:
    """gpudoctor on the lab's machine, with the environment of one engine."""

    def __init__(self, machine: Machine, environment: Mapping[str, str], files: Mapping[str, str] | None = None) -> None:
        self.machine, self.environment, self.files = machine, environment, files

    def ask(self, *words: str, **options: bool) -> subprocess.CompletedProcess[str]:
        command = self.machine.argv(sys.executable, "-m", "gpudoctor", *words, files=self.files, **options)
        return run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=self.environment)

    def run(self, image: str, mode: str, *words: str, **options: bool) -> Refused:
        asked = ("run", "--quiet", "--no-cache", "--no-mount", "--gpus=all", f"--gpu-mode={mode}", "--image", image)
        done = self.ask(*asked, *words, "--", "true", **options)
        assert done.returncode, "the container started"
        return Refused(done.returncode, done.stderr)

    def check(self, image: str, *words: str) -> list[str]:
        """The problems that `gpudoctor check --image` diagnoses, the most severe first."""
        done = self.ask("check", "--format=json", "--level=quick", "--timeout=100", "--gpus=all", "--image", image, *words)
        assert done.returncode == 1, done.stderr
        return [entry["problem"] for entry in json.loads(done.stdout)["diagnosis"]]


@pytest.fixture
def programs() -> Path:
    """Of a Docker that knows CDI."""
    try:
        return lab_docker28.unpacked()
    except RuntimeError as failure:
        pytest.skip(str(failure))


def with_hooks(machine: Machine, environment: Mapping[str, str]) -> dict[str, str]:
    return {**environment, "PATH": f"{machine.folder}/hookbin:{environment['PATH']}"}


@pytest.fixture
def own() -> dict[str, str]:
    """The environment of the machine's own daemon, which knows nothing of NVIDIA."""
    return dict(os.environ)


@pytest.mark.parametrize(
    ("mode", "words"),
    [("gpus", 'could not select device driver "" with capabilities: [[gpu]]'), ("runtime", "nknown runtime specified nvidia")],
)
def test_the_toolkit_is_not_installed(lab_machine: Machine, own: dict[str, str], bookworm: str, mode: str, words: str) -> None:
    refused = Doctor(lab_machine, own).run(bookworm, mode)
    assert words in refused.said
    assert refused.problem == "container-toolkit-missing"
    assert "nvidia-container-toolkit" in refused.fixes


def test_docker_was_not_restarted_since_the_toolkit_came(lab_machine: Machine, own: dict[str, str], bookworm: str) -> None:
    with lab_images.locked("dockerd"):  # the last one that was started is taken for the machine's
        hook = lab_machine.folder / "hookbin/nvidia-container-runtime-hook"
        hook.chmod(0o755)
        refused = Doctor(lab_machine, with_hooks(lab_machine, own)).run(bookworm, "gpus")
    assert 'could not select device driver "" with capabilities: [[gpu]]' in refused.said
    assert refused.problem == "toolkit-newer-than-daemon"
    assert "systemctl restart docker" in refused.fixes


def test_the_runtime_is_not_registered(lab_machine: Machine, cdi_daemon: Daemon, bookworm: str) -> None:
    doctor = Doctor(lab_machine, with_hooks(lab_machine, cdi_daemon.full))
    refused = doctor.run(cdi_daemon.load(bookworm), "runtime")
    assert "unknown or invalid runtime name: nvidia" in refused.said
    assert refused.problem == "docker-runtime-not-configured"
    assert "nvidia-ctk runtime configure --runtime=docker" in refused.fixes


@pytest.mark.parametrize(
    ("fails", "words", "problem", "fix"),
    [
        ("no-library", "load library failed: libnvidia-ml.so.1", "container-driver-libraries-not-found", "ldconfig -p"),
        ("not-loaded", "nvml error: driver not loaded", "container-host-driver-not-loaded", "gpudoctor check"),
        ("mismatch", "nvml error: driver/library version mismatch", "container-driver-library-mismatch", "nvidia-smi"),
        (
            "cgroup",
            "bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted",
            "container-device-rules-refused",
            "no-cgroups=true",
        ),
        (
            "cdi-mode",
            "invoking the NVIDIA Container Runtime Hook directly",
            "nvidia-hook-refused-in-cdi-mode",
            "--runtime=nvidia",
        ),
    ],
)
def test_the_hook_refuses(
    lab_machine: Machine, gpu_daemon: Daemon, bookworm: str, fails: str, words: str, problem: str, fix: str
) -> None:
    lab_machine.set(fails=fails)
    refused = Doctor(lab_machine, gpu_daemon.full).run(gpu_daemon.load(bookworm), "gpus")
    assert refused.code in (125, 127)
    assert words in refused.said
    assert refused.problem == problem
    assert fix in refused.fixes


def test_in_cdi_mode_the_runtime_works(lab_machine: Machine, gpu_daemon: Daemon, bookworm: str) -> None:
    lab_machine.set(fails="cdi-mode")
    done = Doctor(lab_machine, gpu_daemon.full).ask(
        "run", "--quiet", "--image", gpu_daemon.load(bookworm), "--", "nvidia-smi", "-L"
    )
    assert len(done.stdout.splitlines()) == 2


def test_the_driver_is_not_loaded(lab_machine: Machine, gpu_daemon: Daemon, bookworm: str) -> None:
    """And so the host says it too: its finding is the cause."""
    lab_machine.set(fails="not-loaded", loaded=False)
    refused = Doctor(lab_machine, gpu_daemon.full).run(gpu_daemon.load(bookworm), "gpus")
    assert "nvml error: driver not loaded" in refused.said
    assert "Broken: driver" in refused.text
    assert refused.problem.startswith("module-not-")


def test_the_image_wants_a_newer_driver(lab_machine: Machine, gpu_daemon: Daemon, bookworm: str) -> None:
    lab_machine.set(driver="535.104.05")
    refused = Doctor(lab_machine, gpu_daemon.full).run(gpu_daemon.load(bookworm), "gpus", "--env=NVIDIA_REQUIRE_CUDA=cuda>=12.6")
    assert "unsatisfied condition: cuda>=12.6" in refused.said
    assert refused.problem == "container-requires-newer-driver"
    assert "NVIDIA_DISABLE_REQUIRE=1" in refused.fixes


def test_check_says_why_a_container_did_not_start(lab_machine: Machine, gpu_daemon: Daemon, bookworm: str) -> None:
    lab_machine.set(fails="cdi-mode")
    doctor = Doctor(lab_machine, gpu_daemon.full)
    assert doctor.check(gpu_daemon.load(bookworm), "--gpu-mode=gpus")[0] == "nvidia-hook-refused-in-cdi-mode"


def test_a_request_that_is_accepted_and_gives_nothing(lab_machine: Machine, gpu_daemon: Daemon, bookworm: str) -> None:
    lab_machine.set(silent=True)
    assert "container-gpu-did-not-arrive" in Doctor(lab_machine, gpu_daemon.full).check(gpu_daemon.load(bookworm))


def test_some_gpus_do_not_arrive(lab_machine: Machine, gpu_daemon: Daemon, bookworm: str) -> None:
    lab_machine.set(gpus=8, given=7)
    doctor = Doctor(lab_machine, gpu_daemon.full)
    done = doctor.ask("check", "--level=quick", "--timeout=100", "--gpus=all", "--image", gpu_daemon.load(bookworm))
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("GPUs")]
    assert row == ["GPUs", "8", "7"]
    assert done.returncode == 1


def test_gpus_that_a_running_container_loses(lab_machine: Machine, gpu_daemon: Daemon, bookworm: str) -> None:
    """What `systemctl daemon-reload` does where systemd keeps the device rules: nobody may open the nodes any more."""
    container = gpu_daemon.docker("run", "--detach", "--gpus=all", gpu_daemon.load(bookworm), "sleep", "120").stdout.strip()
    try:
        process = gpu_daemon.docker("inspect", "--format={{.State.Pid}}", container).stdout.strip()
        groups = [line.split(":", 2) for line in Path(f"/proc/{process}/cgroup").read_text().splitlines()]
        paths = [Path(f"/sys/fs/cgroup/devices{path}/devices.deny") for _, name, path in groups if name == "devices"]
        if not paths:
            pytest.skip("only with cgroups of version 1 can rules be taken back without systemd")
        paths[0].write_text("c 195:* rwm")
        done = Doctor(lab_machine, gpu_daemon.full).ask("check", "--format=json", "--level=quick", "--container", container)
    finally:
        gpu_daemon.docker("rm", "--force", container)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["diagnosis"][0]["problem"] == "container-lost-gpu-access"


def test_docker_is_too_old_for_cdi(lab_machine: Machine, gpu_daemon: Daemon, programs: Path, bookworm: str) -> None:
    """A newer command with an older daemon."""
    environment = {**gpu_daemon.full, "PATH": f"{programs}:{gpu_daemon.full['PATH']}"}
    refused = Doctor(lab_machine, environment).run(gpu_daemon.load(bookworm), "cdi")
    assert 'could not select device driver "cdi"' in refused.said
    assert refused.problem == "engine-too-old-for-cdi"


def test_cdi_is_switched_off(lab_machine: Machine, programs: Path) -> None:
    with lab_daemons.dockerd(["--ip6tables=false"], path=[programs], settings={"features": {"cdi": False}}) as daemon:
        refused = Doctor(lab_machine, daemon.full).run(daemon.empty(), "cdi")
    assert 'could not select device driver "cdi"' in refused.said
    assert refused.problem == "docker-cdi-switched-off"
    assert "--cdi.enabled" in refused.fixes


def test_docker_finds_no_cdi_specification(lab_machine: Machine, cdi_daemon: Daemon, bookworm: str) -> None:
    lab_machine.cdi.unlink()
    refused = Doctor(lab_machine, cdi_daemon.full).run(cdi_daemon.load(bookworm), "cdi")
    assert "unresolvable CDI devices nvidia.com/gpu=all" in refused.said
    assert refused.problem == "cdi-spec-missing"
    assert "nvidia-ctk cdi generate" in refused.fixes


def test_the_cdi_specification_has_no_such_gpu(lab_machine: Machine, cdi_daemon: Daemon, bookworm: str) -> None:
    doctor = Doctor(lab_machine, cdi_daemon.full, {SPECIFICATION: lab_machine.cdi.read_text()})
    refused = doctor.run(cdi_daemon.load(bookworm), "cdi", "--gpus=7")
    assert "unresolvable CDI devices nvidia.com/gpu=7" in refused.said
    assert refused.problem == "cdi-device-unknown"


def test_the_cdi_specification_is_older_than_the_driver(lab_machine: Machine, cdi_daemon: Daemon, bookworm: str) -> None:
    stale = lab_machine.cdi.read_text().replace(".so.580.159.04", ".so.550.54.15")
    lab_machine.cdi.write_text(stale)
    refused = Doctor(lab_machine, cdi_daemon.full, {SPECIFICATION: stale}).run(cdi_daemon.load(bookworm), "cdi")
    assert refused.problem == "cdi-spec-stale"
    assert "cdi" in refused.fixes


@pytest.mark.parametrize(
    ("version", "problem"), [(None, "cdi-spec-missing"), ("0.6.0", "cdi-spec-too-new")], ids=["no-specification", "too-new"]
)
def test_podman_resolves_no_device(
    lab_machine: Machine, podman: Podman, bookworm: str, version: str | None, problem: str
) -> None:
    files = {SPECIFICATION: podman.specification.replace('"0.5.0"', f'"{version}"')} if version else {}
    refused = Doctor(lab_machine, podman.full, files).run(podman.load(bookworm), "auto", "--engine=podman")
    assert refused.code == 126
    assert "setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all" in refused.said
    assert refused.problem == problem


def test_a_limit_that_the_daemon_may_not_raise(lab_machine: Machine, gpu_daemon: Daemon, bookworm: str) -> None:
    image = gpu_daemon.load(bookworm)
    plain = gpu_daemon.docker("run", "--rm", "--ulimit=memlock=-1", image, "true")
    if plain.returncode == 0:
        pytest.skip("this daemon may raise it")
    assert "error setting rlimit type 8: operation not permitted" in plain.stderr
    done = Doctor(lab_machine, gpu_daemon.full).ask("run", "--image", image, "--", "echo", "started")
    assert done.stdout == "started\n"
