"""/dev/nvidia-uvm, through which CUDA reaches the module that manages memory: it is missing, or of an older boot. Pure."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.engines import again
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Unavailable

UVM_NODE = "/dev/nvidia-uvm"

UVM = Problem(
    id="nvidia-uvm-missing",
    title="/dev/nvidia-uvm does not work: nvidia-smi does, CUDA does not",
    why="CUDA needs the module nvidia_uvm and its node. The module is not loaded, or its node was never made or is of an older "
    "boot; nvidia-modprobe, which does both on demand, is missing or has lost its set-user-id bit.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Load the module and make its node",
            command="sudo modprobe nvidia_uvm && sudo nvidia-modprobe -u -c 0",
            verify=f"ls -l {UVM_NODE}",
            on=("host",),
            kind="restart",
            needs=("root",),
        ),
        Fix(
            "At every boot",
            "echo nvidia_uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix(
            "On the host: load it, describe the devices anew where CDI is used, then start the container again",
            command="sudo nvidia-modprobe -u -c 0 && sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            verify=f"ls -l {UVM_NODE}",
            on=("container",),
            where="host",
            needs=("root",),
        ),
    ),
    references=(
        "https://github.com/pytorch/pytorch/issues/49081",
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/50",
    ),
)

REBOOT = Fix("Boot the kernel that the modules on disk are made for", verify=f"ls -l {UVM_NODE}", on=("host",), reboot=True)
WITH_UVM = again(
    "Start the container again with it: the host has it, a list of --device must name it",
    "run --rm <all_gpus> --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools IMAGE nvidia-smi",
    spec="--device --device",
    verify=f"ls -l {UVM_NODE}",
    on=("container",),
)


def no_uvm(facts: Facts) -> Finding | None:
    wrong = uvm_fault(facts)
    if wrong is None:
        return None
    try:
        initialises, sure = facts.cuda.init_code == 0, Confidence.CONFIRMED
    except Unavailable:
        initialises, sure = False, Confidence.LIKELY
    if initialises:
        return None
    loaded = "nvidia_uvm" in facts.driver.loaded_modules
    return replace(UVM, fixes=ways_to_uvm(facts, loaded)).found(
        f"{wrong}; the module nvidia_uvm is {'' if loaded else 'not '}loaded", {"loaded": loaded}, confidence=sure
    )


def ways_to_uvm(facts: Facts, loaded: bool) -> tuple[Fix, ...]:
    """A module whose file went away with an upgrade of the kernel cannot be loaded before the next boot."""
    if facts.container.engine and loaded and UVM_NODE not in facts.devices.nodes:
        return WITH_UVM
    return UVM.fixes if facts.container.engine or loaded or can_load(facts) else (REBOOT,)


def can_load(facts: Facts) -> bool:
    try:
        others = facts.driver.installed_modules and not facts.driver.module_for_running_kernel
        return not others or bool(facts.driver.modinfo)
    except Unavailable:
        return True


def uvm_fault(facts: Facts) -> str | None:
    """What is wrong with the node. The module gets another major number at each boot, a container keeps the node it was given."""
    node = facts.devices.nodes.get(UVM_NODE)
    major = facts.driver.character_devices.get("nvidia-uvm") if facts.container.engine else None
    if node is None:
        return f"{UVM_NODE} is not there"
    if not node.is_device:
        return f"{UVM_NODE} is no device"
    if major is not None and node.major != major:
        return f"{UVM_NODE} has the major number {node.major}, the module has {major}"
    return f"opening {UVM_NODE} gives {node.open_error}" if node.open_error in ("ENXIO", "ENODEV") else None
