"""Problems of NVIDIA's container toolkit itself: its age, its search path, its configuration. Pure."""

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
    why="The toolkit is configured for a driver in a container, but the driver is installed on this host. It does not find the "
    "driver's libraries, and containers do not start.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Set the toolkit's root to the host's",
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
    why="libnvidia-container before 1.8 supports only cgroup version 1, and looks for a hierarchy that does not exist here. "
    "Containers with a GPU do not start.",
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
        Fix("Upgrade nvidia-container-toolkit as described in NVIDIA's guide", verify=START, on=("other",)),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1618",),
)

CDI_DEVICES = "<docker> run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi"
CDI = f"sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && {CDI_DEVICES}"
NO_RULES = Fix(
    "Set no-cgroups, so that the toolkit writes no device rules (Docker running as root then loses its GPUs)",
    "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place",
    risk="disruptive",
    verify=START,
    kind="set",
    needs=("root",),
)
ROOTLESS = Problem(
    id="rootless-cgroup-permission",
    title="A rootless Docker cannot write the GPU's device rules",
    why="Without real root the kernel does not allow the toolkit to change a container's cgroup. The toolkit must be set not to "
    "try.",
    action=Action.FIX_CONFIG,
    fixes=(
        *restarting_docker(NO_RULES, rootless=True),
        Fix("Use CDI, which does not need these rules (Docker 28.2 or later)", CDI, needs=("root",), engines=("docker",)),
        Fix("Use CDI, which does not need these rules", CDI, needs=("root",), engines=("podman",)),
    ),
    references=("https://github.com/NVIDIA-ISAAC-ROS/isaac_ros_visual_slam/issues/132",),
)

RULES_REFUSED = Problem(
    id="container-device-rules-refused",
    title="NVIDIA's toolkit is not allowed to write the GPU's device rules",
    why="The kernel does not allow the toolkit to change the container's cgroup, although Docker runs as root. Docker itself "
    "runs in a container (LXC, Docker in Docker) with limited privileges.",
    action=Action.FIX_CONFIG,
    fixes=(
        look(
            "Check whether Docker runs in a container: any answer but none", "systemd-detect-virt --container; cat /proc/1/cgroup"
        ),
        Fix(
            "Set no-cgroups, so that the toolkit writes no device rules (the outer container's apply)",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place",
            verify=START,
            kind="set",
            needs=("root",),
        ),
        Fix(
            "Upgrade nvidia-container-toolkit and libnvidia-container1 to the newest, as described in NVIDIA's guide",
            verify=START,
        ),
    ),
    references=("https://github.com/gpustack/gpustack/issues/391",),
)

NO_CGROUPS = Problem(
    id="no-cgroups-breaks-root-docker",
    title="The container toolkit writes no device rules, but Docker needs them",
    why="no-cgroups is meant for rootless Docker. If Docker runs as root, containers get the devices without permission to open "
    "them, and NVML fails there.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Unset no-cgroups, then recreate the containers",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
            verify=START,
            kind="set",
            needs=("root",),
        ),
    ),
)

HOOK_REFUSED = Problem(
    id="nvidia-hook-refused-in-cdi-mode",
    title="The toolkit is in CDI mode, which does not support --gpus",
    why="docker run --gpus calls the toolkit's hook directly, and the hook refuses in this mode. The runtime named nvidia and "
    "CDI devices work.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Request the GPU with the nvidia runtime",
            "docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all ubuntu nvidia-smi",
            engines=("docker",),
        ),
        Fix("Request the GPU as a CDI device (Docker 28.2 or later)", CDI_DEVICES, engines=("docker",)),
        Fix("Request the GPU as a CDI device", CDI_DEVICES, engines=("podman",)),
        Fix(
            "Set the toolkit's mode to auto, so that --gpus also works",
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
    words = f'{CONFIG} sets root = "{root[1]}", but the libraries of driver {facts.driver.library_version} are on the host'
    return WRONG_ROOT.found(words, {"root": root[1], "driver": facts.driver.library_version})


def old_library(facts: Facts) -> Finding | None:
    version = facts.engines.container_cli_version
    if version is None or version >= KNOWS_CGROUP_2 or facts.container.cgroup_version < 2:
        return None
    words = dotted(version)
    return OLD_LIBRARY.found(f"libnvidia-container {words} on a host with cgroup version 2", {"version": words})


def hook_refused(facts: Facts) -> Finding | None:
    """Docker 29.2 and later tries CDI first for --gpus, if the toolkit's CDI hook is installed."""
    daemon = facts.engines.docker
    by_cdi = daemon and daemon.numbers >= GPUS_BY_CDI and facts.engines.program("nvidia-cdi-hook")
    if facts.engines.toolkit_mode != "cdi" or by_cdi:
        return None
    return HOOK_REFUSED.found(f'{CONFIG} sets mode = "cdi"', {"mode": "cdi", "docker": daemon.version if daemon else ""})


def device_rules(facts: Facts, daemon: Docker | None) -> Iterator[Finding]:
    if daemon is None or not daemon.reachable:
        raise Skip("the Docker daemon is not running")
    no_cgroups = writes_no_rules(facts)
    if has_engine_rules(facts, daemon) if no_cgroups else engine_makes_rules(facts, daemon):
        return
    evidence = {"no-cgroups": no_cgroups, "rootless": daemon.rootless}
    if daemon.rootless and not no_cgroups:
        yield ROOTLESS.found(f"Docker is rootless, but {CONFIG} does not set no-cgroups = true", evidence)
    elif no_cgroups and not daemon.rootless:
        words = f"Docker runs as root, but {CONFIG} sets no-cgroups = true"
        yield NO_CGROUPS.found(words, evidence, confidence=Confidence.LIKELY)


def writes_no_rules(facts: Facts) -> bool:
    return bool(re.search(r"(?m)^\s*no-cgroups\s*=\s*true\b", facts.engines.toolkit_config or ""))


def has_engine_rules(facts: Facts, daemon: Docker) -> bool:
    """If --gpus leaves rules to the engine: before Docker 29.2 it uses the hook, unless the nvidia runtime is default."""
    return engine_makes_rules(facts, daemon) and (
        has_cdi_devices(daemon) or daemon.default_runtime == "nvidia" or daemon.numbers >= GPUS_BY_CDI
    )


def engine_makes_rules(facts: Facts, daemon: Docker) -> bool:
    """Whether the engine gets the devices by CDI, from a file or just in time, and keeps the device rules itself."""
    if has_cdi_devices(daemon) or (daemon.cdi_spec_dirs and effective(facts.engines.cdi_specs)):
        return True
    mode = facts.engines.toolkit_mode
    just_in_time = mode == "jit-cdi" or (mode == "auto" and (facts.engines.toolkit_version or (0,)) >= JUST_IN_TIME_CDI)
    return "nvidia" in daemon.runtimes and (mode == "cdi" or just_in_time)
