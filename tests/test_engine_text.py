"""What engines, DKMS and installers print, as evidence: the same explanation as for a container that gpudoctor started."""

from __future__ import annotations

import pytest
from each import each

from gpudoctor import catalog, doctor, evidence
from gpudoctor.facts import Facts
from gpudoctor.facts.container_start import Start
from gpudoctor.knowledge import messages
from gpudoctor.model import Diagnosis, Status

ALL = [(sample, row.problem) for row in messages.messages("container-start") for sample in row.samples]
OF_PROGRAMS = "Failed to initialize NVML"  # what nvidia-smi says in a container, not the engine
UNSELECTED = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n'
NO_SMI = (
    "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create "
    'failed: runc create failed: unable to start container process: exec: "nvidia-smi": executable file not found in $PATH\n'
)


MOSTLY = {"docker-selects-no-gpu-driver": "container-toolkit-missing"}  # what a text alone most likely means


def facts(text: str) -> Facts:
    return Facts(evidence.snapshot_of(evidence.of_text(text)))


def start(text: str) -> Start:
    found = facts(text).engines.start
    assert found is not None
    return found


def told(text: str) -> tuple[Diagnosis, ...]:
    return doctor.judge(evidence.snapshot_of(evidence.of_text(text)), doctor.select(catalog.checks(), "quick")).diagnosis


@pytest.mark.slow
@each(("message", "problem"), [entry for entry in ALL if not entry[0].startswith(OF_PROGRAMS)])
def test_a_message_is_explained_as_that_of_a_start(message: str, problem: str) -> None:
    (entry,) = told(f"{message}\n\nRun 'docker run --help' for more information\n")
    assert entry.problem == MOSTLY.get(problem, problem)
    assert entry.status is Status.FAIL


@pytest.mark.parametrize(("message", "problem"), [entry for entry in ALL if entry[0].startswith(OF_PROGRAMS)])
def test_words_of_nvidia_smi_in_a_container(message: str, problem: str) -> None:
    (entry,) = told(f"$ podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi\n{message}\n")
    assert entry.problem == problem


@each(
    ("command", "engine", "mode", "image", "arguments"),
    [
        ("docker run --rm --gpus all cuda:12 nvidia-smi", "docker", "gpus", "cuda:12", ("--gpus", "all")),
        ("sudo docker run -it -v /a:/b --runtime=nvidia img", "docker", "runtime", "img", ("--runtime=nvidia",)),
        ("docker run --device nvidia.com/gpu=0 img sh", "docker", "cdi", "img", ("--device", "nvidia.com/gpu=0")),
        ("podman run --rm --device /dev/nvidia0 img", "podman", "devices", "img", ("--device", "/dev/nvidia0")),
        ("docker run ubuntu", "docker", "none", "ubuntu", ()),
        ("docker compose up -d", "docker", "unknown", "", ()),
        ("docker run \\\n  --gpus all \\\n  -p 80:80 img", "docker", "gpus", "img", ("--gpus", "all")),
    ],
)
def test_the_command_tells_what_was_asked_for(
    command: str, engine: str, mode: str, image: str, arguments: tuple[str, ...]
) -> None:
    found = start(f"$ {command}\n{UNSELECTED}")
    assert (found.engine, found.mode, found.image, found.arguments) == (engine, mode, image, arguments)
    assert found.words.startswith("could not select device driver")


def test_what_was_pulled_before_is_no_part_of_the_error() -> None:
    text = f"$ docker run --gpus all img:1\nUnable to find image 'img:1' locally\n1: Pulling from img\n{UNSELECTED}"
    assert start(text).message == UNSELECTED.strip()


def test_whether_a_gpu_was_asked_for_decides() -> None:
    assert [entry.problem for entry in told(f"$ docker run ubuntu nvidia-smi\n{NO_SMI}")] == ["container-no-gpus-flag"]
    asked = told(f"$ docker run --gpus all ubuntu nvidia-smi\n{NO_SMI}")
    assert [entry.problem for entry in asked] == ["container-nvidia-smi-not-brought-in"]


def test_what_is_left_open_is_named() -> None:
    (entry,) = told(UNSELECTED)
    assert entry.confidence.value == "likely"
    assert entry.evidence["could_be"][:2] == ["docker-runtime-not-configured", "toolkit-newer-than-daemon"]
    assert entry.evidence["decide"] == "gpudoctor check"


@pytest.mark.parametrize(
    "text",
    [
        "Error response from daemon: No such container: web\n",
        "RuntimeError: OCI is not the word here\nError: the train is late\n",
        "$ docker run --rm --gpus all ubuntu nvidia-smi -L\nGPU 0: NVIDIA L4 (UUID: GPU-1)\n",
        "container_linux.go:380: a line of a log that says nothing\n",
    ],
)
def test_other_words_are_no_start(text: str) -> None:
    assert facts(text).engines.start is None


def test_unknown_words_of_an_engine_are_told_as_unknown() -> None:
    (entry,) = told("docker: Error response from daemon: the moon is in the wrong house.\n")
    assert (entry.problem, entry.confidence.value) == ("container-start-unexplained", "unknown")


def test_events_of_a_pod_end_the_message() -> None:
    text = (
        "  Warning  Failed   3s  kubelet  Error: failed to create containerd task: failed to create shim task: OCI runtime "
        "create failed: nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown\n"
        "  Warning  BackOff  2s  kubelet  Back-off restarting failed container\n"
    )
    assert "Back-off" not in start(text).message


def test_dkms_and_modinfo_fill_facts() -> None:
    text = (
        "$ dkms status\nnvidia/470.86, 5.15.0-91-generic, x86_64: installed\nvboxhost/7.0.8: added\n$ modinfo nvidia\n"
        "filename:       /lib/modules/5.15.0-91-generic/updates/dkms/nvidia.ko\nversion:        470.86\nlicense:        NVIDIA\n"
    )
    driver = facts(text).driver
    assert (driver.dkms[0].module, driver.dkms[0].version, driver.dkms[0].state) == ("nvidia", "470.86", "installed")
    assert driver.modinfo["version"] == "470.86"


def test_a_make_log_is_kept_by_its_path() -> None:
    text = "DKMS make.log for nvidia-470.86 for kernel 5.13.18 (x86_64)\nnvidia/nv-acpi.c:84:19: error: too few arguments\n"
    assert list(facts(text).driver.dkms_make_logs) == ["/var/lib/dkms/nvidia/470.86/build/make.log"]
    assert [entry.problem for entry in told(text)] == ["dkms-build-failed-new-kernel"]
