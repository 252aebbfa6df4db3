"""Which configuration and hooks a container engine of a text uses, and what its release can do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

OTHER_FILE = Problem(
    id="docker-reads-another-configuration",
    title="The Docker daemon is started with another configuration file",
    why="dockerd reads /etc/docker/daemon.json unless --config-file names another file. What nvidia-ctk wrote to daemon.json "
    "has no effect.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Register the runtime in the file that the daemon reads, then restart Docker (restarts its containers)",
            "sudo nvidia-ctk runtime configure --runtime=docker --config=<config_file> && sudo systemctl restart docker",
            verify="docker info --format '{{.Runtimes}}'",
            risk="disruptive",
            where="host",
            kind="restart",
            needs=("root",),
        ),
    ),
    references=("https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file",),
)
LEFT_HOOK = Problem(
    id="oci-hook-left-behind",
    title="A hook file of an older toolkit is still called in addition to CDI",
    why="Podman runs the hooks of /usr/share/containers/oci/hooks.d for every container. Toolkits since 1.14 use CDI and bring "
    "no such file; the old one calls a hook that fails.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Move the hook's file away",
            "sudo mv <hook_file> <hook_file>.off",
            verify="podman run --rm --device nvidia.com/gpu=all <image> nvidia-smi -L",
            undo="sudo mv <hook_file>.off <hook_file>",
            where="host",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",),
)
PROBLEMS = (OTHER_FILE, LEFT_HOOK)

_CONFIG_FILE = re.compile(r"\bdockerd\b[^\n]*--config-file[= ](?P<path>/\S+)")
_NO_RUNTIME = re.compile(r"(?:runtime name:|runtime specified) nvidia\b|could not select device")


def other_configuration(facts: Facts) -> Iterator[Finding]:
    """dockerd was started with a file of another name, and does not know NVIDIA's runtime."""
    text = "\n".join(passages(facts))
    started = _CONFIG_FILE.search(text)
    if started and started["path"] != "/etc/docker/daemon.json" and _NO_RUNTIME.search(text):
        words = f"dockerd was started with --config-file={started['path']}, so it does not read /etc/docker/daemon.json"
        yield OTHER_FILE.found(words, {"config_file": started["path"]}, confidence=Confidence.LIKELY)


FIRST_WITH_CDI = 25
_DOCKER = re.compile(r"\b(?:Docker version|Server Version:) (?P<version>(?P<major>\d+)\.[\d.]+)")


def old_docker(facts: Facts) -> Iterator[Finding]:
    """Docker has CDI since release 25, and the text shows an older one that was asked for a CDI device."""
    text = "\n".join(passages(facts))
    shown = _DOCKER.search(text)
    if shown and int(shown["major"]) < FIRST_WITH_CDI and 'select device driver "cdi"' in text:
        words = f"Docker is {shown['version']}, and CDI needs {FIRST_WITH_CDI} or newer"
        yield facts.problems["engine-too-old-for-cdi"].found(words, {"engine": "Docker"}, confidence=Confidence.LIKELY)


_HOOK_FAILS = re.compile(r"hook `/\S*nvidia-container-(?:runtime-hook|toolkit)` \(exit code: 1\)")
_HOOK_FILE = re.compile(r"(?P<path>/(?:usr/share|etc)/containers/oci/hooks\.d/\S*nvidia\S*\.json)")


def left_hook(facts: Facts) -> Iterator[Finding]:
    """Podman was asked for a CDI device, and the hook of an older toolkit fails."""
    text = "\n".join(passages(facts))
    file = _HOOK_FILE.search(text)
    if file and _HOOK_FAILS.search(text) and "nvidia.com/gpu" in text:
        words = f"{file['path']} calls the hook of an older toolkit for a container that gets its GPU by CDI"
        yield LEFT_HOOK.found(words, {"hook_file": file["path"].rstrip('"')}, confidence=Confidence.LIKELY)


_ENGINE = re.compile(r"(?m)^(?P<user>[a-z_][\w-]*\+?)\s+\d+\s[^\n]*\bnv-hostengine\b")
_NO_PROFILING = re.compile(
    r"""
    Error\ setting\ watches\.\ Result:\ -33
    | \|\s*Profiling\s*\|\s*Failed\ to\ load
    | DCP\ metrics
    | insufficient\ permission
    """,
    re.VERBOSE,
)
AS_ROOT = Fix(
    "Run the service as root (User=root in its unit), then start it again",
    "sudo mkdir -p /etc/systemd/system/nvidia-dcgm.service.d && printf '[Service]\\nUser=root\\n' | "
    "sudo tee /etc/systemd/system/nvidia-dcgm.service.d/10-root.conf && sudo systemctl daemon-reload && "
    "sudo systemctl restart nvidia-dcgm",
    undo="sudo rm /etc/systemd/system/nvidia-dcgm.service.d/10-root.conf && sudo systemctl daemon-reload && "
    "sudo systemctl restart nvidia-dcgm",
    verify="dcgmi modules -l",
    where="host",
    kind="restart",
    needs=("root",),
)


def engine_of_user(facts: Facts) -> Iterator[Finding]:
    """nv-hostengine runs as a user, and DCGM's module for profiling does not load."""
    text = "\n".join(passages(facts))
    engine = _ENGINE.search(text)
    if engine and engine["user"] not in ("root", "grep") and _NO_PROFILING.search(text):
        words = f"nv-hostengine runs as {engine['user']}, and only root may read the performance counters"
        problem = facts.problems["dcgm-profiling-unavailable"]
        problem = replace(problem, fixes=(AS_ROOT, *problem.fixes))
        yield problem.found(words, {"user": engine["user"]}, confidence=Confidence.LIKELY)


RULES = (other_configuration, old_docker, left_hook, engine_of_user)
