"""The driver's device nodes are in /dev, lead to the driver, and this user may open them.

What it means
Programs reach the driver through /dev/nvidiactl, one /dev/nvidiaN for each GPU, and /dev/nvidia-uvm for CUDA's memory. The
set-user-id helper nvidia-modprobe or udev makes them. If one is missing or closed, the driver is loaded but cannot be used.

How it is judged
The nodes, their mode and owner, and the error that opening nvidiactl and nvidia-uvm gives. EACCES is the mode: the user is
not in the node's group. EPERM although the mode allows it is a rule of the kernel's device cgroup (Slurm, a service).

Known exceptions
Nodes are made on demand: none is missed if NVML lists GPUs, and no nvidia-uvm if CUDA initialises. A container or a job that
was given some of the GPUs is as it should be. Under WSL2 there is only /dev/dxg.

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
from gpudoctor.fixes.engines import again
from gpudoctor.judging.driver.uvm_node import UVM, UVM_NODE, no_uvm
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip

LIST = "ls -l /dev/nvidia*"
AGAIN = again(
    "Start the container again with its GPUs; a list of --device needs nvidiactl, nvidia-uvm, nvidia-uvm-tools and each nvidiaN",
    "run --rm <all_gpus> IMAGE nvidia-smi",
    spec="--gpus",
    verify=LIST,
    on=("container",),
)

MISSING = Problem(
    id="device-nodes-missing",
    title="The driver is loaded, but its device nodes are not in /dev",
    why="Nothing has made them: the helper nvidia-modprobe is missing or has lost its set-user-id bit, or nobody has used the "
    "GPU as root since the boot.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Make them",
            command="for minor in <minors>; do sudo nvidia-modprobe -c $minor; done; sudo nvidia-modprobe -u -c 0",
            verify=LIST,
            on=("host",),
            kind="restart",
            needs=("root",),
        ),
        Fix(
            "At every boot: let a daemon do it",
            "sudo systemctl enable --now nvidia-persistenced",
            verify=LIST,
            on=("host",),
            kind="restart",
            needs=("root",),
        ),
        *AGAIN,
    ),
    references=("https://github.com/NVIDIA/enroot/issues/105",),
)

JOIN = Fix(
    "Join the group, then log in again",
    "sudo usermod -aG <group> $USER",
    verify="id -nG",
    on=("host",),
    kind="set",
    needs=("root",),
)
DENIED = Problem(
    id="dev-nvidia-permission-denied",
    title="This user may not open the GPU's device nodes",
    why="The driver opens its nodes to everybody. Here an option of the module (NVreg_DeviceFileMode), a udev rule or VirtualGL "
    "has closed them to all but a group.",
    action=Action.FIX_CONFIG,
    fixes=(
        JOIN,
        Fix(
            "Find what closes them and take it out; until the next boot, open them to everybody",
            command="grep -rniE 'DeviceFile|nvidia' /etc/modprobe.d /etc/udev/rules.d; sudo chmod 0666 /dev/nvidia[0-9]* "
            "/dev/nvidiactl /dev/nvidia-uvm*",
            verify=LIST,
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        *again(
            "Start the container again with the group of the node",
            "run --rm <all_gpus> --group-add <gid> IMAGE nvidia-smi",
            spec="--group-add",
            verify="nvidia-smi -L",
            on=("container",),
        ),
    ),
)

BLOCKED = Problem(
    id="cgroup-no-access-nvml-os-error",
    title="The kernel keeps this session from the GPU, whatever the mode of its nodes",
    why="A device cgroup denies it: a Slurm job that did not ask for a GPU, a service with DevicePolicy, or a container whose "
    "device rules were lost.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Slurm: ask for the GPU", command="srun --gres=gpu:1 nvidia-smi -L", on=("host",)),
        Fix(
            "A systemd service: see which devices it is allowed (NAME: the service), allow them with DeviceAllow",
            command="systemctl show -p DevicePolicy -p DeviceAllow NAME",
            on=("host",),
        ),
        replace(AGAIN[0], title="Start the container again: a reload of systemd on the host takes the devices away"),
        AGAIN[1],
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",),
)

CONTROL, MEMORY = "/dev/nvidiactl", UVM_NODE
CONTROL_MINOR = 255
OPERATING_SYSTEM = 17  # NVML's code
JOB = re.compile(r"slurm|/lxc|kubepods|htcondor|pbs", re.I)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the GPU is /dev/dxg")
    if facts.driver.module_version is None:
        raise Skip("no NVIDIA kernel module is loaded here")
    finding = missing(facts) or refused(facts) or shut_out(facts) or no_uvm(facts)
    if finding:
        yield finding


def works(facts: Facts) -> bool:
    """NVML lists a GPU: then all nodes but CUDA's are there and open, even if they were not when they were looked at."""
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
    words = f"driver {facts.driver.module_version} is loaded, not there: {', '.join(absent)}"
    return MISSING.found(words, {"missing": list(absent), "minors": list(absent.values())})


def gpu_minors(facts: Facts) -> list[int]:
    """The numbers of the nodes that the module's GPUs have; where it does not tell, at least the first one's."""
    found = [gpu["Device Minor"] for gpu in facts.driver.gpu_information.values() if gpu.get("GPU Excluded", "No") == "No"]
    numbers = [int(number) for number in found if number.isdigit()]
    return numbers or ([] if facts.devices.gpu_nodes else [0])


def is_device(facts: Facts, path: str) -> bool:
    node = facts.devices.nodes.get(path)
    return node is not None and node.is_device


def refused(facts: Facts) -> Finding | None:
    """By the mode: one of the two nodes that every program opens, or all GPUs."""
    for path, node in closed(facts):
        if not allows(node, facts.devices.identity):
            return denied(facts, path, node)
    return None


def shut_out(facts: Facts) -> Finding | None:
    """By the kernel, although the mode would allow it."""
    for path, node in closed(facts):
        if allows(node, facts.devices.identity):
            words = f"opening {path} gives {node.open_error}" if node.open_error else f"{path} is closed"
            return blocked(facts, f"{words}, although its mode is {node.mode:04o}", Confidence.CONFIRMED)
    code = facts.nvml.init_code if answers(facts) else None
    if code == OPERATING_SYSTEM:
        return blocked(facts, "NVML says that the operating system has blocked the GPU (17)", Confidence.CONFIRMED)
    if code == 0 and facts.nvml.count == 0 and JOB.search(facts.container.cgroup):
        return blocked(facts, "NVML lists no GPU in this job's control group", Confidence.LIKELY)
    return None


def closed(facts: Facts) -> list[tuple[str, Node]]:
    """The nodes that cannot be opened and are needed: of the GPUs, all or none count."""
    nodes = facts.devices.nodes
    needed = [(path, nodes[path]) for path in (CONTROL, MEMORY) if path in nodes and nodes[path].is_device]
    found = [(path, node) for path, node in needed if node.open_error in ("EACCES", "EPERM")]
    gpus = [(path, nodes[path]) for path in facts.devices.gpu_nodes]
    none_open = not works(facts) and not any(node.readable_writable for _, node in gpus)
    return found + (gpus if none_open else [])


def allows(node: Node, identity: Identity) -> bool:
    """Whether the mode lets this user read and write."""
    shift = 6 if node.uid == identity.uid else 3 if node.gid == identity.gid or node.gid in identity.groups else 0
    return identity.is_root or node.mode >> shift & 6 == 6


def answers(facts: Facts) -> bool:
    return known(lambda: facts.nvml.init_code is not None, False)


def denied(facts: Facts, path: str, node: Node) -> Finding:
    group, option = node.group or str(node.gid), facts.driver.parameters.get("DeviceFileMode")
    # Nobody should join root's group, and joining does not help where the group may not open the node either.
    joins = node.gid != 0 and node.mode >> 3 & 6 == 6
    problem = DENIED if joins else replace(DENIED, fixes=DENIED.fixes[1:])
    return problem.found(
        f"{path} has mode {node.mode:04o} and group {group}, which keeps user id {facts.devices.identity.uid} out",
        {"node": path, "mode": f"{node.mode:04o}", "group": group, "gid": node.gid, "DeviceFileMode": option},
    )


def blocked(facts: Facts, words: str, confidence: Confidence) -> Finding:
    return BLOCKED.found(words, {"cgroup": facts.container.cgroup.strip()}, confidence=confidence)


def summary(facts: Facts) -> str:
    return f"{', '.join(facts.devices.gpu_nodes)} and {CONTROL} can be opened"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(MISSING, UVM, DENIED, BLOCKED),
    needs=("driver-version", "container-gpu-access"),
)
