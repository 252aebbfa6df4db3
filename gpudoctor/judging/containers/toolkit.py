"""What can be wrong with NVIDIA's container toolkit itself: its age, where it looks, how it is configured. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.docker import Docker
from gpudoctor.facts.versions import dotted
from gpudoctor.fixes.common import install_on, look
from gpudoctor.fixes.engines import START, restarting_docker
from gpudoctor.judging.containers.cdi import effective
from gpudoctor.judging.containers.runtime import GPUS_BY_CDI, has_cdi_devices
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip, Status

CONFIG = "/etc/nvidia-container-runtime/config.toml"
KNOWS_CGROUP_2 = (1, 8)
JUST_IN_TIME_CDI = (1, 18)

WRONG_ROOT = Problem(
    id="container-cli-libnvidia-ml-missing",
    title="The container toolkit looks for the driver in the wrong place",
    why="It was configured for a driver that a container provides, but the driver is installed on this host: its libraries "
    "are not found, and containers do not start.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Look for the driver where the host has it",
            "sudo nvidia-ctk config --in-place --set nvidia-container-cli.root=/ --set "
            "nvidia-container-cli.ldconfig=@$(ls /sbin/ldconfig.real 2>/dev/null || echo /sbin/ldconfig)",
            verify=START,
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/154",),
)

OLD_LIBRARY = Problem(
    id="cgroupv2-old-libnvidia-container",
    title="The container toolkit is too old for this host's cgroups",
    why="libnvidia-container before 1.8 only knows version 1 of the cgroups, and looks for a hierarchy that is not there: "
    "containers with a GPU do not start.",
    action=Action.INSTALL,
    fixes=(
        *install_on(
            "Upgrade the toolkit",
            verify=START,
            debian="sudo apt update && sudo apt install nvidia-container-toolkit",
            rhel="sudo dnf upgrade nvidia-container-toolkit",
            suse="sudo zypper update nvidia-container-toolkit",
            arch="sudo pacman -Syu nvidia-container-toolkit",
        ),
        Fix("Upgrade nvidia-container-toolkit as NVIDIA's guide describes", verify=START, on=("other",)),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1618",),
)

CDI_DEVICES = "<docker> run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi"
CDI = f"sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && {CDI_DEVICES}"
NO_RULES = Fix(
    "Tell the toolkit not to write device rules (a Docker that runs as root then loses its GPUs)",
    "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place",
    risk="disruptive",
    verify=START,
    kind="set",
    needs=("root",),
)
ROOTLESS = Problem(
    id="rootless-cgroup-permission",
    title="A rootless Docker cannot write the GPU's device rules",
    why="Without real root the toolkit may not change a container's cgroup, and the kernel refuses it. It must be told not to "
    "try.",
    action=Action.FIX_CONFIG,
    fixes=(
        *restarting_docker(NO_RULES, rootless=True),
        Fix("Use CDI (Docker 28.2 or later), which needs no such rules", CDI, needs=("root",), engines=("docker",)),
        Fix("Use CDI, which needs no such rules", CDI, needs=("root",), engines=("podman",)),
    ),
    references=("https://github.com/NVIDIA-ISAAC-ROS/isaac_ros_visual_slam/issues/132",),
)

RULES_REFUSED = Problem(
    id="container-device-rules-refused",
    title="NVIDIA's toolkit may not write the GPU's device rules",
    why="The kernel forbids it to change the container's cgroup, although Docker runs as root: Docker itself is in a container "
    "(LXC, Docker in Docker) whose rights are limited.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("See whether Docker runs in a container: anything but none", "systemd-detect-virt --container; cat /proc/1/cgroup"),
        Fix(
            "Tell the toolkit not to write device rules: the outer container's rules count",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place",
            verify=START,
            kind="set",
            needs=("root",),
        ),
        Fix("Upgrade nvidia-container-toolkit and libnvidia-container1 to the newest, as NVIDIA's guide describes", verify=START),
    ),
    references=("https://github.com/gpustack/gpustack/issues/391",),
)

NO_CGROUPS = Problem(
    id="no-cgroups-breaks-root-docker",
    title="The container toolkit gives no device rules, but this Docker needs them",
    why="no-cgroups is for a rootless Docker. With one that runs as root containers get the devices without the right to open "
    "them, and NVML fails in them.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Let the toolkit write device rules again; containers are to be created anew",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
            verify=START,
            kind="set",
            needs=("root",),
        ),
    ),
)

HOOK_REFUSED = Problem(
    id="nvidia-hook-refused-in-cdi-mode",
    title="The toolkit is in CDI mode, in which --gpus is refused",
    why="docker run --gpus calls the toolkit's hook directly, which in this mode does nothing but refuse. The runtime named "
    "nvidia and CDI devices work.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Ask for the GPU by the runtime",
            "docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all ubuntu nvidia-smi",
            engines=("docker",),
        ),
        Fix("Ask for it as a CDI device (Docker 28.2 or later)", CDI_DEVICES, engines=("docker",)),
        Fix("Ask for it as a CDI device", CDI_DEVICES, engines=("podman",)),
        Fix(
            "Let the toolkit choose the mode by itself, so that --gpus works too",
            "sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto",
            verify=START,
            kind="set",
            needs=("root",),
        ),
    ),
    references=(
        "https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/cmd/nvidia-container-runtime-hook/main.go",
        "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",
    ),
)


def wrong_root(facts: Facts) -> Finding | None:
    root = re.search(r'(?m)^\s*root\s*=\s*"([^"]+)"', facts.engines.toolkit_config or "")
    if not root or root[1] == "/" or not facts.driver.library_version:
        return None
    words = f'{CONFIG} says root = "{root[1]}", but the libraries of driver {facts.driver.library_version} are on the host'
    return WRONG_ROOT.found(words, {"root": root[1], "driver": facts.driver.library_version})


def old_library(facts: Facts) -> Finding | None:
    version = facts.engines.container_cli_version
    if version is None or version >= KNOWS_CGROUP_2 or facts.container.cgroup_version < 2:
        return None
    words = dotted(version)
    return OLD_LIBRARY.found(f"libnvidia-container {words} on a host with cgroup v2", {"version": words})


def hook_refused(facts: Facts) -> Finding | None:
    """Docker 29.2 and later tries CDI first for --gpus, if the toolkit's CDI hook is there."""
    daemon = facts.engines.docker
    by_cdi = daemon and daemon.numbers >= GPUS_BY_CDI and facts.engines.program("nvidia-cdi-hook")
    if facts.engines.toolkit_mode != "cdi" or by_cdi:
        return None
    return HOOK_REFUSED.found(f'{CONFIG} says mode = "cdi"', {"mode": "cdi", "docker": daemon.version if daemon else ""})


def device_rules(facts: Facts, daemon: Docker | None) -> Iterator[Finding]:
    if daemon is None or not daemon.reachable:
        raise Skip("the Docker daemon does not run")
    if engine_makes_rules(facts, daemon):
        return
    no_cgroups = writes_no_rules(facts)
    evidence = {"no-cgroups": no_cgroups, "rootless": daemon.rootless}
    if daemon.rootless and not no_cgroups:
        yield ROOTLESS.found(f"Docker is rootless, and {CONFIG} does not say no-cgroups = true", evidence)
    elif no_cgroups and not daemon.rootless:
        words = f"Docker runs as root, and {CONFIG} says no-cgroups = true"
        yield NO_CGROUPS.found(words, evidence, confidence=Confidence.LIKELY)


def writes_no_rules(facts: Facts) -> bool:
    return bool(re.search(r"(?m)^\s*no-cgroups\s*=\s*true\b", facts.engines.toolkit_config or ""))


def engine_makes_rules(facts: Facts, daemon: Docker) -> bool:
    """By CDI, written before or just in time: the engine knows the devices, and makes and keeps the rules for them."""
    if has_cdi_devices(daemon) or (daemon.cdi_spec_dirs and effective(facts.engines.cdi_specs)):
        return True
    mode = facts.engines.toolkit_mode
    just_in_time = mode == "jit-cdi" or (mode == "auto" and (facts.engines.toolkit_version or (0,)) >= JUST_IN_TIME_CDI)
    return "nvidia" in daemon.runtimes and (mode == "cdi" or just_in_time)
