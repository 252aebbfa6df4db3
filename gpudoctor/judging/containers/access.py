"""Why a container has no usable GPU: what was requested, and what its host denies. Pure."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.container_start import Start
from gpudoctor.facts.known import known
from gpudoctor.fixes import engines
from gpudoctor.fixes.common import look
from gpudoctor.judging.containers import pod_runtime
from gpudoctor.judging.python import gpu_packages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip

SMI = "nvidia-smi -L"
# IMAGE, CONTAINER and CTID are for the user to replace: their names are not visible inside the container.
DOCKER = Fix(
    "On the host: start the container with its GPUs",
    "<docker> run --rm <all_gpus> <image> nvidia-smi",
    verify=SMI,
    engines=engines.BY_COMMAND,
)
BY_VARIABLE = Fix(
    "Set NVIDIA_VISIBLE_DEVICES, which names the GPUs for the runtime",
    "docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all <image> nvidia-smi",
    verify=SMI,
)
COMPOSE = Fix(
    "In a compose file: add 'gpus: all' to the service, then recreate the container",
    "<docker> compose up -d --force-recreate",
    "disruptive",
    verify=SMI,
    kind="restart",
    engines=engines.BY_COMMAND,
)
PODMAN = Fix(
    "On the host: start the container with its GPUs (older Podman ignores --gpus)",
    "podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable <image> nvidia-smi",
    verify=SMI,
)
KUBERNETES = look(
    "Request a GPU in the container's spec (resources: {limits: {nvidia.com/gpu: 1}}), and check that a node has one",
    "kubectl describe nodes | grep -E '^Name:|nvidia.com/gpu'",
    verify=SMI,
)
APPTAINER = Fix(
    "Start the container with --nv, which adds the driver's libraries", "apptainer exec --nv <image>.sif nvidia-smi", verify=SMI
)
ENROOT = Fix("Request the GPU from Slurm", "srun --gpus=1 --container-image=<image> nvidia-smi -L", verify=SMI)
ENTRIES = " ".join(
    f"'lxc.mount.entry: /dev/{name} dev/{name} none bind,create=file'" for name in ("nvidia0", "nvidiactl", "nvidia-uvm")
)
RULES = '$(awk \'/ nvidia(-frontend|-uvm)?$/{print "lxc.cgroup2.devices.allow: c "$1":* rwm"}\' /proc/devices)'
LXC = Fix(
    "On the host: allow and mount the devices in the container's configuration, then restart it",
    f"printf '%s\\n' \"{RULES}\" {ENTRIES} | sudo tee -a /etc/pve/lxc/CTID.conf",
    verify=SMI,
    where="host",
    needs=("root",),
)
ENGINES = {"docker": (DOCKER, COMPOSE), "podman": (PODMAN,), "kubernetes": (KUBERNETES,), "enroot": (ENROOT,), "lxc": (LXC,)}
DOCUMENTATION = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/"

NO_GPUS_FLAG = Problem(
    id="container-no-gpus-flag",
    title="The container was started without a GPU",
    why="The host has a GPU, but it was not requested when this container was started. A GPU cannot be added to a running "
    "container.",
    action=Action.FIX_CONFIG,
    fixes=(DOCKER, COMPOSE, PODMAN, KUBERNETES, ENROOT, LXC),
    references=("https://github.com/Steam-Headless/docker-steam-headless/issues/117",),
)

NOT_ARRIVED = Problem(
    id="container-gpu-did-not-arrive",
    title="The container started without the GPU that was requested",
    why="Some engines accept a GPU request that they do not support, without an error. Programs in the container then find no "
    "GPU, or run on the CPU without a warning.",
    action=Action.FIX_CONFIG,
    fixes=(
        *engines.by_cdi("Request the GPU as a CDI device, which fails if it is not available", verify=SMI),
        look("Run gpudoctor on the host itself", "gpudoctor check"),
    ),
    references=("https://github.com/containers/podman/issues/19338",),
)

VISIBLE_DEVICES = Problem(
    id="nvidia-visible-devices-void",
    title="NVIDIA_VISIBLE_DEVICES hides all GPUs from this container",
    why="The container toolkit gives a container the GPUs that this variable names. With none, void or an empty value it gives "
    "no GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        *engines.again(
            "Start the container again with the variable set",
            "run --rm <all_gpus> -e NVIDIA_VISIBLE_DEVICES=all <image> nvidia-smi",
            kubectl="set env deployment/<chosen_name> NVIDIA_VISIBLE_DEVICES=all",
        ),
        Fix(
            "Check whether the image sets it, else the compose or pod file", "<docker> image inspect -f '{{.Config.Env}}' <image>"
        ),
    ),
)


HOST_DRIVER = Problem(
    id="container-host-driver-not-loaded",
    title="The driver of the container's host is not loaded",
    why="Containers use the kernel of their host, and therefore its driver. A driver in the image cannot replace it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("On the host: find the cause, get nvidia-smi to work, then start the container again", "gpudoctor check", verify=SMI),
    ),
)


NV_MISSING = Problem(
    id="apptainer-nv-missing",
    title="Apptainer was started without --nv",
    why="The host's devices are visible, but only --nv adds the libraries of its driver to the container.",
    action=Action.FIX_CONFIG,
    fixes=(APPTAINER,),
    references=("https://github.com/apptainer/singularity/issues/5966",),
)


LOST = Problem(
    id="container-lost-gpu-access",
    title="The container lost access to its GPU",
    why="The device nodes exist, but the kernel denies access to them. Usually 'systemctl daemon-reload' ran on the host, as in "
    "any package upgrade, and systemd rewrote the container's device rules without the GPU. Or no-cgroups is true on the host.",
    action=Action.RESTART_APP,
    fixes=(
        *engines.restarted("On the host: restart the container", SMI),
        *engines.by_cdi("Use CDI, so that a reload keeps the devices"),
        Fix(
            "On the host: check no-cgroups, which must not be true when dockerd runs as root",
            "grep no-cgroups /etc/nvidia-container-runtime/config.toml",
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",),
)


SELINUX = Problem(
    id="podman-selinux-nvml-insufficient",
    title="SELinux denies the container access to the GPU",
    why="The permissions of the device nodes allow everyone, but the host's SELinux policy denies containers access (NVML error "
    "4).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Start this container without SELinux separation", PODMAN.command, verify=SMI),
        Fix(
            "On the host: allow device access for all containers",
            "sudo setsebool -P container_use_devices 1",
            verify=SMI,
            where="host",
            needs=("root",),
        ),
    ),
    references=(DOCUMENTATION + "troubleshooting.html",),
)


USERNS = Problem(
    id="docker-userns-remap",
    title="The container's user namespace has no access to the GPU devices",
    why="Users in the container have other ids on the host (userns-remap, rootless), and only root and its group can open the "
    "device nodes.",
    action=Action.FIX_CONFIG,
    fixes=(
        *engines.again(
            "Start the container in the host's user namespace",
            "run --rm --userns=host <all_gpus> <image> nvidia-smi",
            spec="set hostUsers: true",
            verify=SMI,
        ),
        Fix(
            "On the host: open the device nodes to all users, as the driver does by default",
            "sudo chmod 0666 /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm*",
            where="host",
            needs=("root",),
        ),
    ),
)


def is_without_gpus_on_purpose(facts: Facts) -> bool:
    """Whether the container's setting hides all GPUs and its PyTorch is a build for CPUs, and nothing else wants a GPU.

    An empty value is not a decision: an unset variable of a compose file gives it, too.
    """
    visible = known(lambda: facts.environment.get("NVIDIA_VISIBLE_DEVICES")) or ""
    version = known(lambda: facts.python.torch_version) or ""
    if visible.strip().lower() not in HIDING or not version.endswith("+cpu") or known(lambda: facts.container.engine) is None:
        return False
    start = known(lambda: facts.engines.start)
    return not (facts.expected or (start and start.asked_for_gpu) or facts.devices.gpu_nodes or gpu_packages.wanting(facts))


def no_devices(facts: Facts, engine: str) -> Finding:
    if not facts.system.wsl and facts.driver.module_version is None:
        return host_driver(facts)
    visible = facts.environment.get("NVIDIA_VISIBLE_DEVICES")
    if visible is not None and visible.strip().lower() in ("", *HIDING):
        if is_without_gpus_on_purpose(facts):
            words = (
                f"NVIDIA_VISIBLE_DEVICES is {visible!r}, and PyTorch {facts.python.torch_version} is a build for CPUs, which fits"
            )
            return replace(VISIBLE_DEVICES.found(words, {"value": visible}).as_note, without_gpus=True)
        return VISIBLE_DEVICES.found(f"NVIDIA_VISIBLE_DEVICES is {visible!r}", {"value": visible})
    start = facts.engines.start
    if start and start.asked_for_gpu:
        return not_arrived(start, visible)
    host = "this is WSL2" if facts.system.wsl else f"the host runs driver {facts.driver.module_version}"
    words, evidence = (
        f"{host}, but this {named(engine)} has no GPU device",
        {"engine": engine, "NVIDIA_VISIBLE_DEVICES": visible},
    )
    if engine == "apptainer":
        return NV_MISSING.found(words, evidence)
    if engine == "kubernetes" and (unhandled := pod_runtime.without_runtime(facts, NOT_ARRIVED, visible, words)):
        return unhandled
    sure = Confidence.LIKELY if facts.system.wsl else Confidence.CONFIRMED
    return for_engine(engine, NO_GPUS_FLAG).found(words, evidence, confidence=sure)


HIDING = ("void", "none")
FIRST_DOCKER = 17  # first of Docker's versions by year; Podman's are far below


def not_arrived(start: Start, visible: str | None) -> Finding:
    """The problem for an engine that accepted the request but gave no GPU."""
    evidence = {"engine": start.name, "mode": start.mode, "arguments": start.arguments, "NVIDIA_VISIBLE_DEVICES": visible}
    asked = " ".join(start.arguments)
    problem, words = NOT_ARRIVED, ""
    if start.is_podman and start.mode == "gpus":
        problem, words = replace(NOT_ARRIVED, fixes=(PODMAN,)), f"{start.name} accepted {asked} but ignored it"
    elif not start.is_podman and start.numbers and start.numbers[0] < FIRST_DOCKER:
        words = f"the docker command talks to Podman {start.version}, which accepted {asked} but ignored it"
        problem = replace(NOT_ARRIVED, fixes=(PODMAN,))
    elif start.mode == "cdi" and "=" not in asked.partition("nvidia.com/")[2]:
        words = "the requested list of CDI devices is empty"
    elif start.mode == "runtime" and visible is None:
        problem = replace(NOT_ARRIVED, fixes=(BY_VARIABLE,))
        words = "the nvidia runtime was used, but NVIDIA_VISIBLE_DEVICES is not set"
    if words:
        return problem.found(words, evidence)
    words = f"{start.name} accepted {asked or start.mode}, but the container has neither /dev/nvidiactl nor /dev/dxg"
    return NOT_ARRIVED.found(words, evidence, confidence=Confidence.UNKNOWN)


def host_driver(facts: Facts) -> Finding:
    if not facts.pci.gpus:
        raise Skip("neither the host's driver nor its GPU is visible")
    gpus = [gpu.address for gpu in facts.pci.gpus]
    return HOST_DRIVER.found(f"{', '.join(gpus)} on the host's bus, but no nvidia module is loaded in its kernel", {"gpus": gpus})


def for_engine(engine: str, problem: Problem) -> Problem:
    """The problem with the fixes of this engine only."""
    return replace(problem, fixes=ENGINES.get(engine, (DOCKER, PODMAN)))


def named(engine: str) -> str:
    return "container" if engine == "unknown" else f"{engine} container"
