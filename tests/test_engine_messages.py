"""Engines' messages as people reported them: each is understood, and what only looks like one of them is not taken for it."""

from __future__ import annotations

import re

import machine
import pytest
from each import each
from test_container_start import DAEMON, DOCKER_28, SAMPLES, judged, start

from gpudoctor.evidence.readers import engine
from gpudoctor.judging.containers import failed_start
from gpudoctor.knowledge import messages
from gpudoctor.knowledge.messages import Message
from gpudoctor.model import Confidence, Reply
from gpudoctor.start_failures import Start

# Row -> its problem on a host with a healthy Docker, where the host's facts decide.
ON_DOCKER_HOST = {
    "engine-cdi-device-unresolvable": "cdi-spec-missing",
    "engine-device-rules-not-permitted": "container-device-rules-refused",
}


def reported(sample: str) -> Start:
    read = engine.read(sample)
    if read and read["container-start"].value["engine"] == "podman":
        return start(sample, "podman", "5.4.0", "podman")
    return start(sample)


@each(("sample", "row"), SAMPLES)
def test_what_people_reported_is_understood_on_a_healthy_host(sample: str, row: Message) -> None:
    """Without the words of who passed it on, and with nothing quoted that nobody said."""
    one = reported(sample)
    finding = judged(one)
    assert finding.problem.id == ON_DOCKER_HOST.get(row.id, row.problem)
    assert (finding.confidence is Confidence.UNKNOWN) == (row.id == "engine-selects-no-gpu-driver")
    assert one.words
    assert not re.search(r"stdout:|level=error|Cannot start service|_linux\.go|\\\\|time=\"", one.words)
    if row.problem in messages.problems(failed_start.CHECK_ID):
        for quoted in re.findall(r"(?<!\w)'([^']+)'(?!\w)", finding.problem.why):
            assert quoted in one.words


@each(("sample", "row"), SAMPLES)
def test_podman_gets_no_advice_for_dockers_daemon(sample: str, row: Message) -> None:
    finding = judged(start(sample, "podman", "5.4.0", "podman"))
    for fix in finding.problem.fixes:
        assert "journalctl -u docker" not in fix.command
        assert not re.search(r"\bdocker (run|info|image|ps)\b", fix.command + fix.verify), fix


@each(
    ("message", "problem"),
    [
        # Words of GPU faults in places where they mean nothing.
        (DOCKER_28 + 'exec: "nvidia-container-runtime-demo": executable file not found in $PATH', "container-command-not-found"),
        (DAEMON + "No such image: nvidia-container-cli:could-not-select-device-driver", "container-image-missing"),
        (
            DAEMON + 'invalid mount config for type "bind": bind source path does not exist: /data/unknown-cgroup',
            "container-mount-source-missing",
        ),
        # Who executed: runc the container's command, or an engine a program of the host.
        (DOCKER_28 + 'exec: "iptables": executable file not found in $PATH', "container-command-not-found"),
        (
            DOCKER_28 + 'error during container init: exec: "iptables": executable file not found in $PATH',
            "container-command-not-found",
        ),
        (DOCKER_28 + 'exec: "nvidia-container-cli": executable file not found in $PATH', "container-command-not-found"),
        (
            DOCKER_28 + 'exec: "/opt/nvidia-smi-exporter": stat /opt/nvidia-smi-exporter: no such file',
            "container-command-not-found",
        ),
        # What is mounted by the user is no file of a specification.
        (
            DOCKER_28 + 'error during container init: error mounting "/home/nvidia/x.yml" to rootfs at "/x": not a directory',
            "container-mount-source-missing",
        ),
        (DAEMON + "pull access denied for apparmor-seccomp/cgroup, repository does not exist", "container-image-missing"),
        # A limit of processes is not one of memory.
        (
            DAEMON + "failed to start shim: fork/exec /usr/bin/containerd-shim-runc-v2: cannot allocate memory",
            "container-memory-short",
        ),
        # Busy is not slow.
        (
            DOCKER_28 + "error during container init: nvidia-container-cli: initialization error: nvml error: gpu is lost",
            "container-driver-unusable",
        ),
    ],
)
def test_what_only_looks_like_a_gpu_fault(message: str, problem: str) -> None:
    assert judged(start(message), {}).problem.id == problem


@pytest.mark.parametrize(
    "message",
    [
        "docker: " + DAEMON + "pivot_root .: invalid argument",
        DOCKER_28 + "error during container init: mount proc:/proc (via /proc/self/fd/6): invalid argument",
        DAEMON + "lchown /x: invalid arguments in the house of the moon",
    ],
)
def test_invalid_argument_is_only_the_command_lines_where_it_begins_with_it(message: str) -> None:
    assert judged(start(message), {}).problem.id != "container-option-refused"
    assert (
        judged(start('invalid argument "8x" for "-m, --memory" flag: invalid size'), {}).problem.id == "container-option-refused"
    )


def test_a_driver_with_enough_cuda_is_not_told_to_upgrade() -> None:
    message = DOCKER_28 + "nvidia-container-cli: requirement error: unsatisfied condition: cuda>={}, please update"
    enough, short = judged(start(message.format("12.8"))), judged(start(message.format("99.0")))
    assert "which is sufficient" in enough.message
    assert not any("install" in fix.command for fix in enough.problem.fixes)
    assert "which is sufficient" not in short.message
    assert any("install" in fix.command for fix in short.problem.fixes)


def test_a_stale_specification_is_written_again_where_it_lies() -> None:
    stale = start("Error: crun: cannot stat `/usr/lib64/libEGL_nvidia.so.550.54.14`: No such file", "podman", "5.4.0", "podman")
    known = machine.load("docker-host").replies
    text = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n# /usr/lib64/libEGL_nvidia.so.550.54.14\n"
    told = {**known, "cdi": Reply("ok", [{"path": "/etc/cdi/mine.yaml", "text": text, "mtime": 0.0}])}
    finding = judged(stale, told)
    assert finding.evidence["file"] == "/etc/cdi/mine.yaml"
    assert "--output=<file>" in finding.problem.fixes[0].command
    assert "grep" in judged(stale).problem.fixes[0].command


def test_nerdctl_is_told_of_nerdctl() -> None:
    message = DOCKER_28.removeprefix(DAEMON) + 'exec: "nosuch": executable file not found in $PATH'
    fixes = judged(start("FATA[0000] " + message), {}).problem.fixes
    assert fixes[0].command.startswith("nerdctl run")


def test_what_compose_shows_of_its_progress_is_left_out() -> None:
    message = "[+] Running 1/2\n ✔ Network web  Created\n ⠙ Container web  Starting\nError response from daemon: the moon is full"
    assert start(message).words == "the moon is full"


def test_of_a_very_long_message_the_end_is_shown_too() -> None:
    said = judged(start(DAEMON + "beginning " + "word " * 200 + "the reason")).message
    assert said.startswith("beginning")
    assert said.endswith("the reason")
    assert len(said) < 450
