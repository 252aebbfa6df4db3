"""The driver's device nodes exist in /dev, lead to the driver, and can be opened by this user.

What it means
Programs access the driver through /dev/nvidiactl, one /dev/nvidiaN for each GPU, and /dev/nvidia-uvm for CUDA's memory. The
setuid helper nvidia-modprobe or udev creates them. If a node is missing or cannot be opened, the driver is loaded but unusable.

How it is judged
The check looks at the nodes, their mode and owner, and the error from opening nvidiactl and nvidia-uvm. EACCES means that the
mode denies access: the user is not in the node's group. EPERM although the mode allows access means that a device cgroup rule
of the kernel denies it (Slurm, a service).

Known exceptions
Nodes are created on demand: if NVML lists GPUs, no node counts as missing; if CUDA initialises, nvidia-uvm does not either. A
container or a job may have only some of the GPUs. Under WSL2 there is only /dev/dxg.

References
https://github.com/pytorch/pytorch/issues/49081
https://github.com/NVIDIA/nvidia-container-toolkit/issues/50
https://github.com/NVIDIA/enroot/issues/105
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.devices import Identity, Node
from gpudoctor.facts.known import known
from gpudoctor.facts.launcher import SLURM, launcher
from gpudoctor.fixes.engines import again
from gpudoctor.judging.driver.uvm_node import UVM, UVM_NODE, no_uvm
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip

LIST = "ls -l /dev/nvidia*"
AGAIN = again(
    "Recreate the container with its GPUs; with --device, pass nvidiactl, nvidia-uvm, nvidia-uvm-tools and each nvidiaN",
    "run --rm <all_gpus> <image> nvidia-smi",
    spec="request the GPU (resources.limits, nvidia.com/gpu: 1)",
    verify=LIST,
    on=("container",),
)

MISSING = Problem(
    id="device-nodes-missing",
    title="The driver is loaded, but its device nodes are not in /dev",
    why="Nothing created them: the helper nvidia-modprobe is missing or has lost its setuid bit, or root has not used the GPU "
    "since the boot.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Create the device nodes",
            command="for minor in <minors>; do sudo nvidia-modprobe -c $minor; done; sudo nvidia-modprobe -u -c 0",
            verify=LIST,
            on=("host",),
            kind="restart",
            needs=("root",),
        ),
        Fix(
            "Let nvidia-persistenced create them at every boot",
            "sudo systemctl enable --now nvidia-persistenced",
            verify=LIST,
            on=("host",),
            kind="restart",
            needs=("root",),
            undo="sudo systemctl disable --now nvidia-persistenced",
        ),
        *AGAIN,
    ),
    references=("https://github.com/NVIDIA/enroot/issues/105",),
)

OTHER = Problem(
    id="device-node-of-another-device",
    title="A device node of the driver leads to another device",
    why="A program opens the GPU by the numbers of its node, not by its name. A mount over the node, an image's own /dev, or a "
    "script with mknod gives it the numbers of something else.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Remove what is in its place, and let the driver's helper create it",
            command="sudo umount <devices> || true; sudo rm -f <devices>; "
            "for minor in <minors>; do sudo nvidia-modprobe -c $minor; done",
            verify=LIST,
            on=("host",),
            kind="restart",
            needs=("root",),
        ),
        *AGAIN,
    ),
)

JOIN = Fix(
    "Join the group, then log in again",
    "sudo usermod -aG <group> $USER",
    verify="id -nG",
    on=("host",),
    kind="set",
    needs=("root",),
    undo="sudo gpasswd -d $USER <group>",
)
DENIED = Problem(
    id="dev-nvidia-permission-denied",
    title="Permission denied for the GPU's device nodes",
    why="By default all users may open the driver's nodes. Here a module option (NVreg_DeviceFileMode), a udev rule or VirtualGL "
    "restricts them to one group.",
    action=Action.FIX_CONFIG,
    fixes=(
        JOIN,
        Fix(
            "Find and remove the setting that restricts them; until the next boot, allow all users",
            command="grep -rniE 'DeviceFile|nvidia' /etc/modprobe.d /etc/udev/rules.d; sudo chmod 0666 /dev/nvidia[0-9]* "
            "/dev/nvidiactl /dev/nvidia-uvm*",
            verify=LIST,
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        *again(
            "Recreate the container with the node's group",
            "run --rm <all_gpus> --group-add <gid> <image> nvidia-smi",
            spec="add the node's group to securityContext.supplementalGroups",
            verify="nvidia-smi -L",
            on=("container",),
        ),
    ),
)

BLOCKED = Problem(
    id="cgroup-no-access-nvml-os-error",
    title="The kernel denies this session access to the GPU",
    why="The mode of the nodes does not matter: a device cgroup denies access. Typical cases are a Slurm job that did not "
    "request a GPU, a service with DevicePolicy, and a container that lost its device rules.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("In Slurm: request the GPU", command="srun --gres=gpu:1 nvidia-smi -L", on=("host",), started_by=("slurm",)),
        Fix(
            "In a systemd service: show its allowed devices, then add the GPU's with DeviceAllow",
            command="systemctl show -p DevicePolicy -p DeviceAllow <unit>",
            on=("host",),
            started_by=("service", "login"),
        ),
        replace(AGAIN[0], title="Recreate the container: a reload of systemd on the host removes its devices"),
        AGAIN[1],
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",),
)

CONTROL, MEMORY = "/dev/nvidiactl", UVM_NODE
CONTROL_MINOR = 255
MAJOR = 195  # of all nodes but nvidia-uvm: assigned in the kernel's devices.txt
OPERATING_SYSTEM = 17  # NVML's code
JOB = re.compile(r"slurm|/lxc|kubepods|htcondor|pbs", re.I)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the GPU is /dev/dxg")
    if facts.driver.module_version is None:
        raise Skip("no NVIDIA kernel module is loaded")
    finding = of_another(facts) or missing(facts) or refused(facts) or shut_out(facts) or no_uvm(facts)
    if finding:
        yield finding


def works(facts: Facts) -> bool:
    """Whether NVML lists a GPU: then all nodes except CUDA's exist and are open, even if they were not when inspected."""
    return known(lambda: bool(facts.nvml.reachable), False)


def missing(facts: Facts) -> Finding | None:
    if works(facts):
        return None
    minors = {f"/dev/nvidia{minor}": minor for minor in gpu_minors(facts)} | {CONTROL: CONTROL_MINOR}
    absent = {path: minor for path, minor in minors.items() if not is_device(facts, path)}
    if facts.container.engine and CONTROL not in absent and facts.devices.gpu_nodes:
        return None
    if not absent:
        return None
    words = f"driver {facts.driver.module_version} is loaded, missing: {', '.join(absent)}"
    return MISSING.found(words, {"missing": list(absent), "minors": list(absent.values())})


def of_another(facts: Facts) -> Finding | None:
    """A node is there, with the numbers of another device."""
    minors = {CONTROL: CONTROL_MINOR} | {path: int(path[len("/dev/nvidia") :]) for path in facts.devices.gpu_nodes}
    nodes = {path: node for path in minors if (node := facts.devices.nodes.get(path)) and node.is_device}
    wrong = {path: node for path, node in nodes.items() if (node.major, node.minor) != (MAJOR, minors[path])}
    if wrong:
        words = ", ".join(
            f"{path} has {node.major}:{node.minor} instead of {MAJOR}:{minors[path]}" for path, node in wrong.items()
        )
        return OTHER.found(
            f"numbers of another device: {words}", {"devices": list(wrong), "minors": [minors[path] for path in wrong]}
        )
    return None


def gpu_minors(facts: Facts) -> list[int]:
    """Minor numbers of the module's GPUs. If the module does not report them and no GPU node exists: 0."""
    found = [gpu["Device Minor"] for gpu in facts.driver.gpu_information.values() if gpu.get("GPU Excluded", "No") == "No"]
    numbers = [int(number) for number in found if number.isdigit()]
    return numbers or ([] if facts.devices.gpu_nodes else [0])


def is_device(facts: Facts, path: str) -> bool:
    node = facts.devices.nodes.get(path)
    return node is not None and node.is_device


def refused(facts: Facts) -> Finding | None:
    """The mode denies access to one of the two nodes that every program opens, or to all GPUs."""
    for path, node in closed(facts):
        if not allows(node, facts.devices.identity):
            return denied(facts, path, node)
    return None


def shut_out(facts: Facts) -> Finding | None:
    """The kernel denies access although the mode allows it."""
    for path, node in closed(facts):
        if allows(node, facts.devices.identity):
            words = f"opening {path} fails with {node.open_error}" if node.open_error else f"{path} cannot be opened"
            return blocked(facts, f"{words}, although its mode is {node.mode:04o}", Confidence.CONFIRMED)
    code = facts.nvml.init_code if answers(facts) else None
    if code == OPERATING_SYSTEM:
        return blocked(facts, "NVML reports that the operating system has blocked the GPU (17)", Confidence.CONFIRMED)
    if code == 0 and facts.nvml.count == 0 and JOB.search(facts.container.cgroup):
        return blocked(facts, "NVML lists no GPU in this job's control group", Confidence.LIKELY)
    return None


def closed(facts: Facts) -> list[tuple[str, Node]]:
    """Needed nodes that cannot be opened. GPU nodes count only if none of them can be opened."""
    nodes = facts.devices.nodes
    needed = [(path, nodes[path]) for path in (CONTROL, MEMORY) if path in nodes and nodes[path].is_device]
    found = [(path, node) for path, node in needed if node.open_error in ("EACCES", "EPERM")]
    gpus = [(path, nodes[path]) for path in facts.devices.gpu_nodes]
    none_open = not works(facts) and not any(node.readable_writable for _, node in gpus)
    return found + (gpus if none_open else [])


def allows(node: Node, identity: Identity) -> bool:
    """Whether the mode allows this user to read and write."""
    shift = 6 if node.uid == identity.uid else 3 if node.gid == identity.gid or node.gid in identity.groups else 0
    return identity.is_root or node.mode >> shift & 6 == 6


def answers(facts: Facts) -> bool:
    return known(lambda: facts.nvml.init_code is not None, False)


def denied(facts: Facts, path: str, node: Node) -> Finding:
    group, option = node.group or str(node.gid), facts.driver.parameters.get("DeviceFileMode")
    # No user should join root's group, and joining does not help if the group may not open the node either.
    joins = node.gid != 0 and node.mode >> 3 & 6 == 6
    problem = DENIED if joins else replace(DENIED, fixes=DENIED.fixes[1:])
    return problem.found(
        f"{path} has mode {node.mode:04o} and group {group}, which denies access to user id {facts.devices.identity.uid}",
        {"node": path, "mode": f"{node.mode:04o}", "group": group, "gid": node.gid, "DeviceFileMode": option},
    )


def blocked(facts: Facts, words: str, confidence: Confidence) -> Finding:
    given = known(lambda: any("GPU" in name for name in facts.environment.variables if name.startswith("SLURM_")), True)
    if launcher(facts.replies).kind == SLURM and not given:
        words += "; this Slurm job was given no GPU"
    return BLOCKED.found(words, {"cgroup": facts.container.cgroup.strip()}, confidence=confidence)


def summary(facts: Facts) -> str:
    return f"{', '.join(facts.devices.gpu_nodes)} and {CONTROL} can be opened"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(MISSING, OTHER, UVM, DENIED, BLOCKED),
    needs=("driver-version", "container-gpu-access"),
    tags=("slurm",),
)
