"""Running containers keep their GPUs when systemd reloads its units.

What it means
The toolkit's older way adds a GPU's device rules to a container's cgroup behind the back of systemd, which owns that cgroup.
At the next `systemctl daemon-reload` (package upgrades do one) systemd writes the rules anew without the GPU, and what runs in
the container gets 'Failed to initialize NVML: Unknown Error'.

How it is judged
Docker's cgroup driver is systemd, and GPUs come by the toolkit's hook: neither CDI devices nor the nvidia runtime of toolkit
1.18 or later, which has the engine make the rules.

Known exceptions
With no-cgroups = true and in a rootless Docker there are no such rules. docker run --gpus uses the hook with every toolkit, so
that a machine that passes here still has the fault where containers are started that way.

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
    title="Running containers will lose their GPU at the next systemctl daemon-reload",
    why="systemd owns the containers' cgroups, and does not know of the device rules that the toolkit's hook adds to them. When "
    "it reloads its units it writes the rules anew, without the GPU.",
    action=Action.WATCH,
    status=Status.WARN,
    latent=True,
    fixes=(
        Fix("Start containers with CDI devices (Docker 28.2 or later)", "docker run --rm --device nvidia.com/gpu=all IMAGE"),
        Fix(
            "Upgrade the toolkit to 1.18 or later, and start them by the runtime instead of --gpus",
            "docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all IMAGE",
        ),
        Fix(
            'Let Docker own the cgroups: in daemon.json "exec-opts": ["native.cgroupdriver=cgroupfs"], then restart it',
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
        raise Skip("Docker Desktop has cgroups of its own" if daemon.is_desktop else "it is Podman that answers")
    if not (gives_gpus(daemon) or facts.engines.toolkit_newer_than_daemon is False):
        raise Skip("this Docker gives no GPU to containers")
    if daemon.cgroup_driver != "systemd" or daemon.rootless or writes_no_rules(facts) or engine_makes_rules(facts, daemon):
        return
    version = dotted(facts.engines.toolkit_version or facts.engines.container_cli_version or ())
    if not version:
        raise Unavailable("which version of NVIDIA's container toolkit this is cannot be seen")
    words = f"Docker's cgroup driver is systemd, and GPUs come by the hook of toolkit {version}"
    evidence = {"cgroup_driver": daemon.cgroup_driver, "toolkit": version, "mode": facts.engines.toolkit_mode}
    yield LOST_AT_RELOAD.found(words, evidence, confidence=Confidence.LIKELY)


def summary(facts: Facts) -> str:
    return f"cgroup driver {running(facts).cgroup_driver}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(LOST_AT_RELOAD,),
    needs=("container-runtime",),
    explained_by=("container-toolkit",),
)
