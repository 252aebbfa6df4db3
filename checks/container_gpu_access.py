"""This container was given the GPU: its device nodes, the right to open them, and the driver's libraries.

What it means
A container has of the GPU only what its engine put into it when it was created: device nodes in /dev, permission to open
them, and the libraries of the host's driver. Nothing of that can be added to a running container; it is created again.

How it is judged
Only where the host has a GPU (its driver's module shows in /proc, in every container). In this order: no device node (not
asked for, or hidden by NVIDIA_VISIBLE_DEVICES); a node that may not be opened, where the error and the node's mode tell
device rules (EPERM), SELinux (EACCES although everybody may) and user namespaces apart; devices without libraries.

Known exceptions
On a host there is nothing to judge. Apptainer shows the host's /dev and makes no rules of its own, so that what cannot be
opened there is the host's business. Libraries for video and graphics may be missing. Under WSL2 the device is /dev/dxg.

References
https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
https://github.com/apptainer/singularity/issues/5966
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.devices import Node
from gpudoctor.model import Action, Cause, Check, Confidence, Finding, Fix, Problem, Skip, Unavailable, first_cause

SMI = "nvidia-smi -L"
# IMAGE, CONTAINER and CTID are what a person puts there: from in here their names are not visible.
DOCKER = Fix("Start it again with its GPUs, on the host", "docker run --rm --gpus all IMAGE nvidia-smi", verify=SMI)
COMPOSE = Fix(
    "In a compose file: 'gpus: all' under the service, then", "docker compose up -d --force-recreate", "disruptive", verify=SMI
)
PODMAN = Fix(
    "Start it again with its GPUs, on the host (older versions of Podman ignore --gpus)",
    "podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable IMAGE nvidia-smi",
    verify=SMI,
)
KUBERNETES = Fix(
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

VISIBLE_DEVICES = Problem(
    id="nvidia-visible-devices-void",
    title="NVIDIA_VISIBLE_DEVICES hides all GPUs from this container",
    why="The container toolkit gives a container the GPUs that this variable names; none, void and an empty value name no GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Start it again with the variable set", "docker run --rm --gpus all -e NVIDIA_VISIBLE_DEVICES=all IMAGE nvidia-smi"),
        Fix("Find who sets it: the image, or the compose or pod file", "docker image inspect -f '{{.Config.Env}}' IMAGE"),
    ),
)

HOST_DRIVER = Problem(
    id="container-host-driver-not-loaded",
    title="The host has a GPU, but its driver is not loaded",
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

CAPABILITIES = Problem(
    id="container-driver-capabilities-missing",
    title="NVIDIA_DRIVER_CAPABILITIES leaves out libraries that CUDA needs",
    why="The toolkit brings in only the libraries of the named capabilities: compute has CUDA, utility has NVML and nvidia-smi.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Start it again with both (in a Dockerfile: ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
            "docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE nvidia-smi",
            verify=SMI,
        ),
    ),
    references=(DOCUMENTATION + "docker-specialized.html",),
)

NO_LIBRARIES = Problem(
    id="container-driver-libraries-missing",
    title="The GPU's devices are in the container, the driver's libraries are not",
    why="Only device nodes were passed in (--device /dev/nvidia0, or a privileged container). Programs also need the libraries "
    "of the host's driver, in exactly its version.",
    action=Action.FIX_CONFIG,
    fixes=(DOCKER, COMPOSE, PODMAN, KUBERNETES, ENROOT),
)
IN_LXC = Fix(
    "Install the libraries of exactly the host's driver, without its module",
    "sudo sh NVIDIA-Linux-*-<driver>.run --no-kernel-module",
    verify=SMI,
)

LOST = Problem(
    id="container-lost-gpu-access",
    title="The container has lost the right to use its GPU",
    why="The device nodes are there, but the kernel refuses them. Usually the host ran 'systemctl daemon-reload' (any package "
    "upgrade does), and systemd wrote the container's device rules anew without the GPU; or no-cgroups is true on the host.",
    action=Action.RESTART_APP,
    fixes=(
        Fix("On the host: start the container again", "docker restart CONTAINER", risk="disruptive", verify=SMI),
        Fix(
            "For good: by CDI, so that a reload keeps the devices", "docker run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi"
        ),
        Fix("On the host: must not say true for a root daemon", "grep no-cgroups /etc/nvidia-container-runtime/config.toml"),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",),
)

LXC_RULES = Problem(
    id="lxc-device-rules-missing",
    title="The LXC container may not open the GPU's devices",
    why="The nodes are mounted, but the container's device rules do not allow their major numbers.",
    action=Action.FIX_CONFIG,
    fixes=(LXC,),
)

SELINUX = Problem(
    id="podman-selinux-nvml-insufficient",
    title="SELinux forbids the container to use the GPU",
    why="Everybody may open the device nodes, but the host's SELinux policy forbids it to containers (NVML's code 4).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Start it again without SELinux's separation, for this container only", PODMAN.command, verify=SMI),
        Fix("On the host: allow devices to all containers", "sudo setsebool -P container_use_devices 1", verify=SMI),
    ),
    references=(DOCUMENTATION + "troubleshooting.html",),
)

USERNS = Problem(
    id="docker-userns-remap",
    title="The container's user namespace has no right to the GPU's devices",
    why="Users in here are others on the host (userns-remap, rootless), and the nodes are open to root and its group only.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Start it again in the host's user namespace", "docker run --rm --userns=host --gpus all IMAGE nvidia-smi", verify=SMI
        ),
        Fix(
            "On the host: open the nodes to everybody, as the driver does by itself",
            "sudo chmod 0666 /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm*",
        ),
    ),
)

DENIED = Problem(
    id="container-gpu-device-denied",
    title="The container may not open the GPU's devices",
    why="The node's mode allows it, but the kernel refuses; which rule of the host does so is not visible from here.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("On the host: look for what was denied", "sudo dmesg | grep -iE 'denied|nvidia' | tail", verify=SMI),),
)

REFUSALS = (LOST, LXC_RULES, SELINUX, USERNS, DENIED)


def judge(facts: Facts) -> Iterator[Finding]:
    engine = facts.container.engine
    if engine is None:
        raise Skip("this is not a container")
    if not (facts.devices.gpu_nodes or "/dev/dxg" in facts.devices.nodes):
        yield no_devices(facts, engine)
        return
    denied = {path: node for path, node in facts.devices.nodes.items() if node.open_error in ("EPERM", "EACCES")}
    if denied and engine != "apptainer":
        refusals = list(refused(facts, engine, " and ".join(sorted(denied, reverse=True)), denied[max(denied)]))
        if refusals:
            yield from refusals
            return
    yield from libraries(facts, engine)


def no_devices(facts: Facts, engine: str) -> Finding:
    if not facts.system.wsl and facts.driver.module_version is None:
        return host_driver(facts)
    visible = facts.environment.get("NVIDIA_VISIBLE_DEVICES")
    if visible is not None and visible.strip().lower() in ("", "void", "none"):
        return VISIBLE_DEVICES.found(f"NVIDIA_VISIBLE_DEVICES is {visible!r}", {"value": visible})
    host = "this is WSL2" if facts.system.wsl else f"the host runs driver {facts.driver.module_version}"
    words, evidence = (
        f"{host}, but no GPU device is in this {_name(engine)}",
        {"engine": engine, "NVIDIA_VISIBLE_DEVICES": visible},
    )
    if engine == "apptainer":
        return NV_MISSING.found(words, evidence)
    sure = Confidence.LIKELY if facts.system.wsl else Confidence.CONFIRMED
    return _for(engine, NO_GPUS_FLAG).found(words, evidence, confidence=sure)


def host_driver(facts: Facts) -> Finding:
    if not facts.pci.gpus:
        raise Skip("neither a driver nor a GPU of the host is in sight")
    gpus = [gpu.address for gpu in facts.pci.gpus]
    return HOST_DRIVER.found(f"{', '.join(gpus)} on the host's bus, but no nvidia module in its kernel", {"gpus": gpus})


def refused(facts: Facts, engine: str, paths: str, node: Node) -> Iterator[Finding]:
    words = f"opening {paths} gives {node.open_error}, its mode is {node.mode:04o}"
    evidence = {"nodes": paths, "error": node.open_error, "mode": f"{node.mode:04o}", "engine": engine, "nvml": _nvml(facts)}
    if node.open_error == "EPERM":
        lost = LOST.found(words, evidence, confidence=Confidence.LIKELY)
        yield LXC_RULES.found(words, evidence) if engine == "lxc" else lost
    elif node.mode & 0o006 == 0o006:
        selinux = Cause(SELINUX, lambda facts: SELINUX.found(words, evidence) if facts.system.selinux_enforcing else None)
        yield from first_cause((selinux,), facts, DENIED.found(words, evidence))
    elif facts.container.user_namespace:
        yield USERNS.found(f"{words}, and users are mapped in a user namespace", evidence)


def _nvml(facts: Facts) -> str:
    try:
        return facts.nvml.init_error
    except Unavailable as failure:
        return failure.reason


def libraries(facts: Facts, engine: str) -> Iterator[Finding]:
    missing = [name for name in ("libcuda.so.1", "libnvidia-ml.so.1") if not _is_there(facts, name)]
    if not missing:
        return
    words = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in this {_name(engine)}"
    capabilities = facts.environment.get("NVIDIA_DRIVER_CAPABILITIES") or "compute,utility"
    evidence = {"missing": missing, "engine": engine, "NVIDIA_DRIVER_CAPABILITIES": capabilities}
    if engine == "apptainer":
        yield NV_MISSING.found(words, evidence)
    elif _left_out(missing, capabilities):
        yield CAPABILITIES.found(f"{words}: NVIDIA_DRIVER_CAPABILITIES is {capabilities!r}", evidence)
    else:
        problem = replace(NO_LIBRARIES, fixes=(IN_LXC,)) if engine == "lxc" else _for(engine, NO_LIBRARIES)
        yield problem.found(words, evidence)


def _is_there(facts: Facts, soname: str) -> bool:
    named = (library for library in facts.libraries.all if library.soname == soname and library.size is not None)
    return any(not library.is_stub and not library.is_compat for library in named)


def _left_out(missing: list[str], capabilities: str) -> bool:
    """Whether every missing library belongs to a capability that was not asked for."""
    asked = set(capabilities.replace(" ", "").split(","))
    needed = {"libcuda.so.1": "compute", "libnvidia-ml.so.1": "utility"}
    return "all" not in asked and all(needed[name] not in asked for name in missing)


def _for(engine: str, problem: Problem) -> Problem:
    """The problem with the fixes of this engine only."""
    return replace(problem, fixes=ENGINES.get(engine, (DOCKER, PODMAN)))


def _name(engine: str) -> str:
    return "container" if engine == "unknown" else f"{engine} container"


def summary(facts: Facts) -> str:
    return f"{_name(facts.container.engine or 'unknown')} with devices and driver libraries"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="container",
    problems=(NO_GPUS_FLAG, VISIBLE_DEVICES, HOST_DRIVER, NV_MISSING, CAPABILITIES, NO_LIBRARIES, *REFUSALS),
)
