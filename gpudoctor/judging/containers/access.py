"""Why no GPU, or none that may be used, is in a container: what was asked for, and what its host forbids. Pure."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.container_start import Start
from gpudoctor.fixes import engines
from gpudoctor.fixes.common import look
from gpudoctor.judging.containers import pod_runtime
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip

SMI = "nvidia-smi -L"
# IMAGE, CONTAINER and CTID are what a person puts there: from in here their names are not visible.
DOCKER = Fix(
    "Start it again with its GPUs, on the host",
    "<docker> run --rm <all_gpus> IMAGE nvidia-smi",
    verify=SMI,
    engines=engines.BY_COMMAND,
)
BY_VARIABLE = Fix(
    "Name the GPUs, which the runtime reads from a variable",
    "docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all IMAGE nvidia-smi",
    verify=SMI,
)
COMPOSE = Fix(
    "In a compose file: 'gpus: all' under the service, then",
    "<docker> compose up -d --force-recreate",
    "disruptive",
    verify=SMI,
    kind="restart",
    engines=engines.BY_COMMAND,
)
PODMAN = Fix(
    "Start it again with its GPUs, on the host (older versions of Podman ignore --gpus)",
    "podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable IMAGE nvidia-smi",
    verify=SMI,
)
KUBERNETES = look(
    "Ask for a GPU in the container's spec (resources: {limits: {nvidia.com/gpu: 1}}); does a node have one?",
    "kubectl describe nodes | grep -E '^Name:|nvidia.com/gpu'",
    verify=SMI,
)
APPTAINER = Fix("Start it with --nv, which brings the driver's libraries", "apptainer exec --nv IMAGE.sif nvidia-smi", verify=SMI)
ENROOT = Fix("Ask Slurm for the GPU", "srun --gpus=1 --container-image=IMAGE nvidia-smi -L", verify=SMI)
ENTRIES = " ".join(
    f"'lxc.mount.entry: /dev/{name} dev/{name} none bind,create=file'" for name in ("nvidia0", "nvidiactl", "nvidia-uvm")
)
RULES = '$(awk \'/ nvidia(-frontend|-uvm)?$/{print "lxc.cgroup2.devices.allow: c "$1":* rwm"}\' /proc/devices)'
LXC = Fix(
    "On the host: allow and mount the devices in the container's configuration, then restart it (CTID: its number)",
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
    why="The host has one, but whoever started this container did not ask for it, so that nothing of it is in here. It cannot be "
    "added to a running container.",
    action=Action.FIX_CONFIG,
    fixes=(DOCKER, COMPOSE, PODMAN, KUBERNETES, ENROOT, LXC),
    references=("https://github.com/Steam-Headless/docker-steam-headless/issues/117",),
)

NOT_ARRIVED = Problem(
    id="container-gpu-did-not-arrive",
    title="A GPU was asked for, the container started without an error, and has none",
    why="Some engines accept a request for a GPU that they do not understand, and say nothing. What runs in the container then "
    "finds no GPU, or quietly computes on the processor.",
    action=Action.FIX_CONFIG,
    fixes=(
        *engines.by_cdi("Ask for it as a CDI device, which fails where it cannot be given", verify=SMI),
        look("See what the host itself has to say", "gpudoctor check"),
    ),
    references=("https://github.com/containers/podman/issues/19338",),
)

VISIBLE_DEVICES = Problem(
    id="nvidia-visible-devices-void",
    title="NVIDIA_VISIBLE_DEVICES hides all GPUs from this container",
    why="The container toolkit gives a container the GPUs that this variable names; none, void and an empty value name no GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        *engines.again(
            "Start it again with the variable set",
            "run --rm <all_gpus> -e NVIDIA_VISIBLE_DEVICES=all IMAGE nvidia-smi",
            kubectl="set env deployment/NAME NVIDIA_VISIBLE_DEVICES=all",
        ),
        Fix("Find who sets it: the image, or the compose or pod file", "<docker> image inspect -f '{{.Config.Env}}' IMAGE"),
    ),
)


HOST_DRIVER = Problem(
    id="container-host-driver-not-loaded",
    title="The driver of the container's host is not loaded",
    why="Containers use the kernel, and so the driver, of their host. Nothing that is installed in this image can replace it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("On the host: find out why, make nvidia-smi work, then start the container again", "gpudoctor check", verify=SMI),
    ),
)


NV_MISSING = Problem(
    id="apptainer-nv-missing",
    title="Apptainer was started without --nv",
    why="The host's devices are visible, but the libraries of its driver are only brought into the container by --nv.",
    action=Action.FIX_CONFIG,
    fixes=(APPTAINER,),
    references=("https://github.com/apptainer/singularity/issues/5966",),
)


LOST = Problem(
    id="container-lost-gpu-access",
    title="The container has lost the right to use its GPU",
    why="The device nodes are there, but the kernel refuses them. Usually the host ran 'systemctl daemon-reload' (any package "
    "upgrade does), and systemd wrote the container's device rules anew without the GPU; or no-cgroups is true on the host.",
    action=Action.RESTART_APP,
    fixes=(
        *engines.restarted("On the host: start the container again", SMI),
        *engines.by_cdi("For good: by CDI, so that a reload keeps the devices"),
        Fix("On the host: must not say true for a root daemon", "grep no-cgroups /etc/nvidia-container-runtime/config.toml"),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",),
)


SELINUX = Problem(
    id="podman-selinux-nvml-insufficient",
    title="SELinux forbids the container to use the GPU",
    why="Everybody may open the device nodes, but the host's SELinux policy forbids it to containers (NVML's code 4).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Start it again without SELinux's separation, for this container only", PODMAN.command, verify=SMI),
        Fix(
            "On the host: allow devices to all containers",
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
    title="The container's user namespace has no right to the GPU's devices",
    why="Users in here are others on the host (userns-remap, rootless), and the nodes are open to root and its group only.",
    action=Action.FIX_CONFIG,
    fixes=(
        *engines.again(
            "Start it again in the host's user namespace",
            "run --rm --userns=host <all_gpus> IMAGE nvidia-smi",
            spec="--userns=host",
            verify=SMI,
        ),
        Fix(
            "On the host: open the nodes to everybody, as the driver does by itself",
            "sudo chmod 0666 /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm*",
            where="host",
            needs=("root",),
        ),
    ),
)


def no_devices(facts: Facts, engine: str) -> Finding:
    if not facts.system.wsl and facts.driver.module_version is None:
        return host_driver(facts)
    visible = facts.environment.get("NVIDIA_VISIBLE_DEVICES")
    if visible is not None and visible.strip().lower() in ("", "void", "none"):
        return VISIBLE_DEVICES.found(f"NVIDIA_VISIBLE_DEVICES is {visible!r}", {"value": visible})
    start = facts.engines.start
    if start and start.asked_for_gpu:
        return not_arrived(start, visible)
    host = "this is WSL2" if facts.system.wsl else f"the host runs driver {facts.driver.module_version}"
    words, evidence = (
        f"{host}, but no GPU device is in this {named(engine)}",
        {"engine": engine, "NVIDIA_VISIBLE_DEVICES": visible},
    )
    if engine == "apptainer":
        return NV_MISSING.found(words, evidence)
    if engine == "kubernetes" and (unhandled := pod_runtime.without_runtime(facts, NOT_ARRIVED, visible, words)):
        return unhandled
    sure = Confidence.LIKELY if facts.system.wsl else Confidence.CONFIRMED
    return for_engine(engine, NO_GPUS_FLAG).found(words, evidence, confidence=sure)


FIRST_DOCKER = 17  # of its versions since they are named after the year; Podman's are far below


def not_arrived(start: Start, visible: str | None) -> Finding:
    """Which of the engines and requests that fail without a word this is."""
    evidence = {"engine": start.name, "mode": start.mode, "arguments": start.arguments, "NVIDIA_VISIBLE_DEVICES": visible}
    asked = " ".join(start.arguments)
    problem, words = NOT_ARRIVED, ""
    if start.is_podman and start.mode == "gpus":
        problem, words = replace(NOT_ARRIVED, fixes=(PODMAN,)), f"{start.name} accepted {asked} and ignored it"
    elif not start.is_podman and start.numbers and start.numbers[0] < FIRST_DOCKER:
        words = f"Podman {start.version} answers behind Docker's interface: it accepted {asked} and ignored it"
        problem = replace(NOT_ARRIVED, fixes=(PODMAN,))
    elif start.mode == "cdi" and "=" not in asked.partition("nvidia.com/")[2]:
        words = "the list of CDI devices that was asked for is empty"
    elif start.mode == "runtime" and visible is None:
        problem = replace(NOT_ARRIVED, fixes=(BY_VARIABLE,))
        words = "the runtime nvidia was used, but NVIDIA_VISIBLE_DEVICES names no GPU: it is not set"
    if words:
        return problem.found(words, evidence)
    words = f"{start.name} accepted {asked or start.mode}, but there is neither /dev/nvidiactl nor /dev/dxg in the container"
    return NOT_ARRIVED.found(words, evidence, confidence=Confidence.UNKNOWN)


def host_driver(facts: Facts) -> Finding:
    if not facts.pci.gpus:
        raise Skip("neither a driver nor a GPU of the host is in sight")
    gpus = [gpu.address for gpu in facts.pci.gpus]
    return HOST_DRIVER.found(f"{', '.join(gpus)} on the host's bus, but no nvidia module in its kernel", {"gpus": gpus})


def for_engine(engine: str, problem: Problem) -> Problem:
    """The problem with the fixes of this engine only."""
    return replace(problem, fixes=ENGINES.get(engine, (DOCKER, PODMAN)))


def named(engine: str) -> str:
    return "container" if engine == "unknown" else f"{engine} container"
