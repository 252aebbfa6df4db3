"""NVIDIA's container toolkit is new enough and configured for the way in which this host runs containers.

What it means
nvidia-container-cli, the toolkit's older part, puts the driver into a container when it starts. It has to find the driver and
write the container's device rules. Writing them requires real root and a release that supports this host's cgroup version.

How it is judged
In /etc/nvidia-container-runtime/config.toml, `root` must not point elsewhere if the driver is installed on the host.
`no-cgroups` must be true for a rootless Docker and must not be true for one that runs as root. With `mode` "cdi" the hook
refuses --gpus. libnvidia-container before 1.8 does not support cgroup v2.

Known exceptions
If Docker has discovered the GPU through CDI, or the nvidia runtime of toolkit 1.18 or later is the default one, the engine
writes the rules and no-cgroups does not matter. Docker 29.2 and later tries CDI first for --gpus, so the mode does not matter.

References
https://github.com/NVIDIA/nvidia-container-toolkit/issues/154
https://github.com/NVIDIA/nvidia-docker/issues/1618
https://github.com/NVIDIA-ISAAC-ROS/isaac_ros_visual_slam/issues/132
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.containers.toolkit import (
    HOOK_REFUSED,
    NO_CGROUPS,
    OLD_LIBRARY,
    ROOTLESS,
    WRONG_ROOT,
    device_rules,
    hook_refused,
    old_library,
    wrong_root,
)
from gpudoctor.model import Check, Finding, Skip


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if not facts.engines.toolkit_installed:
        raise Skip("NVIDIA's container toolkit is not installed")
    if not facts.system.wsl and facts.driver.module_version is None:
        raise Skip("no NVIDIA driver is loaded for containers to use")
    finding = wrong_root(facts) or old_library(facts)
    if finding:
        yield finding
    elif facts.engines.docker_installed and not facts.engines.daemon_is_elsewhere:
        refused = hook_refused(facts)
        if refused:
            yield refused
        yield from device_rules(facts, facts.engines.docker)


def summary(facts: Facts) -> str:
    version = facts.engines.toolkit_version or facts.engines.container_cli_version or ()
    return f"container toolkit {'.'.join(map(str, version))}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(WRONG_ROOT, OLD_LIBRARY, ROOTLESS, NO_CGROUPS, HOOK_REFUSED),
    needs=("docker-daemon", "container-runtime"),
    tags=("docker", "kubernetes"),
)
