"""Running containers keep their GPUs when systemd reloads its units.

What it means
The toolkit's hook adds the GPU's device rules to a container's cgroup without the knowledge of systemd, which owns that cgroup.
At the next `systemctl daemon-reload` (package upgrades run one) systemd rewrites the rules without the GPU. Programs in the
container then fail with 'Failed to initialize NVML: Unknown Error'.

How it is judged
A note, not a warning, as all containers still have their GPUs. It is made if Docker's cgroup driver is systemd and the toolkit's
hook provides the GPUs. CDI devices, and the nvidia runtime of toolkit 1.18 or later, are not affected: there the engine writes
the rules.

Known exceptions
With no-cgroups = true, and in a rootless Docker, there are no such rules. docker run --gpus uses the hook with every toolkit
version, so containers that are started with it can lose their GPU even on a host that passes this check.

References
https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.versions import dotted
from gpudoctor.judging.containers.daemon import docker_here, running
from gpudoctor.judging.containers.runtime import gives_gpus
from gpudoctor.judging.containers.toolkit import engine_makes_rules, writes_no_rules
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status, Unavailable

LOST_AT_RELOAD = Problem(
    id="gpu-lost-at-daemon-reload",
    title="Running containers lose their GPU at the next systemctl daemon-reload",
    why="systemd owns the containers' cgroups, but does not know the device rules that the toolkit's hook adds to them. When "
    "systemd reloads its units, it rewrites the rules without the GPU.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        Fix("Start containers with CDI devices (Docker 28.2 or later)", "docker run --rm --device nvidia.com/gpu=all <image>"),
        Fix(
            "Upgrade the toolkit to 1.18 or later, and start containers with --runtime=nvidia instead of --gpus",
            "docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all <image>",
        ),
        Fix(
            'Set "exec-opts": ["native.cgroupdriver=cgroupfs"] in daemon.json, so that Docker owns the cgroups, then restart it',
            "sudo systemctl restart docker",
            risk="disruptive",
            verify="docker info | grep -i 'cgroup driver'",
            kind="restart",
            needs=("root",),
        ),
    ),
    references=(
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
        "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    docker_here(facts)
    daemon = running(facts)
    if daemon.is_desktop or daemon.is_podman:
        raise Skip("Docker Desktop has its own cgroups" if daemon.is_desktop else "Podman answers the docker command")
    if not (gives_gpus(daemon) or facts.engines.toolkit_newer_than_daemon is False):
        raise Skip("this Docker cannot give GPUs to containers")
    if daemon.cgroup_driver != "systemd" or daemon.rootless or writes_no_rules(facts) or engine_makes_rules(facts, daemon):
        return
    version = dotted(facts.engines.toolkit_version or facts.engines.container_cli_version or ())
    if not version:
        raise Unavailable("the version of NVIDIA's container toolkit is unknown")
    words = f"Docker's cgroup driver is systemd, and GPUs are provided by the hook of toolkit {version}"
    evidence = {"cgroup_driver": daemon.cgroup_driver, "toolkit": version, "mode": facts.engines.toolkit_mode}
    yield LOST_AT_RELOAD.found(words, evidence, confidence=Confidence.LIKELY).as_note


def summary(facts: Facts) -> str:
    return f"cgroup driver {running(facts).cgroup_driver}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(LOST_AT_RELOAD,),
    needs=("container-runtime",),
    explained_by=("container-toolkit",),
    tags=("docker",),
)
