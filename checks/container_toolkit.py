"""NVIDIA's container toolkit is new enough and configured for the way in which this host runs containers.

What it means
nvidia-container-cli, the toolkit's older part, puts the driver into a container when it starts. It has to find the driver,
and to write the container's device rules, which takes real root and a release that knows this host's kind of cgroups.

How it is judged
/etc/nvidia-container-runtime/config.toml: `root` must not point elsewhere while the driver is on the host, `no-cgroups` must
be true for a rootless Docker and must not be true for one that runs as root. libnvidia-container before 1.8 knows no cgroup v2.

Known exceptions
Where Docker has discovered the GPU by CDI, or runs the nvidia runtime of toolkit 1.18 or later, the rules are the engine's
work and no-cgroups does not matter.

References
https://github.com/NVIDIA/nvidia-container-toolkit/issues/154
https://github.com/NVIDIA/nvidia-docker/issues/1618
https://github.com/NVIDIA-ISAAC-ROS/isaac_ros_visual_slam/issues/132
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.runtime import Docker
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, fix_on

RUN = "docker run --rm --gpus all ubuntu nvidia-smi"
CONFIG = "/etc/nvidia-container-runtime/config.toml"
KNOWS_CGROUP_2 = (1, 8)
JUST_IN_TIME_CDI = (1, 18)

WRONG_ROOT = Problem(
    id="container-cli-libnvidia-ml-missing",
    title="The container toolkit looks for the driver in the wrong place",
    why="It was configured for a driver that a container provides, but the driver is installed on this host: containers do not "
    "start, with 'load library failed: libnvidia-ml.so.1'.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Look for the driver where the host has it",
            "sudo nvidia-ctk config --in-place --set nvidia-container-cli.root=/ --set "
            "nvidia-container-cli.ldconfig=@$(ls /sbin/ldconfig.real 2>/dev/null || echo /sbin/ldconfig)",
            verify=RUN,
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/154",),
)

OLD_LIBRARY = Problem(
    id="cgroupv2-old-libnvidia-container",
    title="The container toolkit is too old for this host's cgroups",
    why="libnvidia-container before 1.8 only knows version 1 of the cgroups; containers do not start: 'no cgroup filesystem "
    "mounted for the devices subsytem'.",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Upgrade the toolkit",
            verify=RUN,
            debian="sudo apt update && sudo apt install nvidia-container-toolkit",
            rhel="sudo dnf upgrade nvidia-container-toolkit",
            suse="sudo zypper update nvidia-container-toolkit",
            arch="sudo pacman -Syu nvidia-container-toolkit",
        ),
        Fix("Upgrade nvidia-container-toolkit as NVIDIA's guide describes", verify=RUN, on=("other",)),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1618",),
)

CDI = (
    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && docker run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi"
)
ROOTLESS = Problem(
    id="rootless-cgroup-permission",
    title="A rootless Docker cannot write the GPU's device rules",
    why="Without real root the toolkit may not change a container's cgroup: 'failed to add device rules: ... "
    "bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted'. It must be told not to try.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Tell the toolkit not to write device rules (a Docker that runs as root then loses its GPUs), and restart Docker",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place && systemctl --user restart docker",
            risk="disruptive",
            verify=RUN,
        ),
        Fix("Use CDI (Docker 28.2 or later), which needs no such rules", CDI),
    ),
    references=("https://github.com/NVIDIA-ISAAC-ROS/isaac_ros_visual_slam/issues/132",),
)

NO_CGROUPS = Problem(
    id="no-cgroups-breaks-root-docker",
    title="The container toolkit gives no device rules, but this Docker needs them",
    why="no-cgroups is for a rootless Docker. With one that runs as root containers get the devices without the right to open "
    "them: 'Failed to initialize NVML: Unknown Error'.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Let the toolkit write device rules again; containers are to be created anew",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
            verify=RUN,
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if not facts.runtime.toolkit_installed:
        raise Skip("NVIDIA's container toolkit is not installed")
    if not facts.system.wsl and facts.driver.module_version is None:
        raise Skip("no NVIDIA driver is loaded that containers could use")
    finding = wrong_root(facts) or old_library(facts)
    if finding:
        yield finding
    elif facts.runtime.docker_installed:
        yield from device_rules(facts, facts.runtime.docker)


def wrong_root(facts: Facts) -> Finding | None:
    root = re.search(r'(?m)^\s*root\s*=\s*"([^"]+)"', facts.runtime.toolkit_config or "")
    if not root or root[1] == "/" or not facts.driver.library_version:
        return None
    words = f'{CONFIG} says root = "{root[1]}", but the libraries of driver {facts.driver.library_version} are on the host'
    return WRONG_ROOT.found(words, {"root": root[1], "driver": facts.driver.library_version})


def old_library(facts: Facts) -> Finding | None:
    version = facts.runtime.container_cli_version
    if version is None or version >= KNOWS_CGROUP_2 or facts.container.cgroup_version < 2:
        return None
    words = ".".join(map(str, version))
    return OLD_LIBRARY.found(f"libnvidia-container {words} on a host with cgroup v2", {"version": words})


def device_rules(facts: Facts, daemon: Docker | None) -> Iterator[Finding]:
    if daemon is None or not daemon.reachable:
        raise Skip("the Docker daemon does not run")
    if engine_makes_rules(facts, daemon):
        return
    no_cgroups = bool(re.search(r"(?m)^\s*no-cgroups\s*=\s*true\b", facts.runtime.toolkit_config or ""))
    evidence = {"no-cgroups": no_cgroups, "rootless": daemon.rootless}
    if daemon.rootless and not no_cgroups:
        yield ROOTLESS.found(f"Docker is rootless, and {CONFIG} does not say no-cgroups = true", evidence)
    elif no_cgroups and not daemon.rootless:
        words = f"Docker runs as root, and {CONFIG} says no-cgroups = true"
        yield NO_CGROUPS.found(words, evidence, confidence=Confidence.LIKELY)


def engine_makes_rules(facts: Facts, daemon: Docker) -> bool:
    if any(device.startswith("nvidia.com/gpu") for device in daemon.discovered_devices):
        return True
    return "nvidia" in daemon.runtimes and (facts.runtime.toolkit_version or (0,)) >= JUST_IN_TIME_CDI


def summary(facts: Facts) -> str:
    version = facts.runtime.toolkit_version or facts.runtime.container_cli_version or ()
    return f"container toolkit {'.'.join(map(str, version))}"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="container",
    problems=(WRONG_ROOT, OLD_LIBRARY, ROOTLESS, NO_CGROUPS),
    needs=("docker-daemon", "container-runtime"),
)
