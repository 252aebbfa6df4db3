"""/dev/nvidia-uvm, through which CUDA uses the module that manages memory: missing, or from an earlier boot. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.engines import again
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Unavailable

UVM_NODE = "/dev/nvidia-uvm"

UVM = Problem(
    id="nvidia-uvm-missing",
    title="/dev/nvidia-uvm is unusable: nvidia-smi works, CUDA does not",
    why="CUDA needs the module nvidia_uvm and its node. The module is not loaded, or its node was never created or is from an "
    "earlier boot. nvidia-modprobe, which does both on demand, is missing or has lost its setuid bit.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Load the module and create its node",
            command="sudo modprobe nvidia_uvm && sudo nvidia-modprobe -u -c 0",
            verify=f"ls -l {UVM_NODE}",
            on=("host",),
            kind="restart",
            needs=("root",),
        ),
        Fix(
            "Load the module at every boot",
            "echo nvidia_uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf",
            on=("host",),
            kind="set",
            needs=("root",),
            undo="sudo rm /etc/modules-load.d/nvidia-uvm.conf",
        ),
        Fix(
            "On the host: load it, regenerate the CDI file if CDI is used, then recreate the container",
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

KEPT_OUT = re.compile(r"(?m)^\s*install\s+nvidia[-_]uvm\s+\S*(false|true)\b")
TAKE_OUT = Fix(
    "Remove the rule, then load the module",
    r"sudo sed -i.bak -E '/^\s*(install|blacklist)\s+nvidia[-_]uvm/d' <file> && sudo modprobe nvidia_uvm",
    verify=f"ls -l {UVM_NODE}",
    on=("host",),
    kind="restart",
    needs=("root",),
    undo="sudo mv <file>.bak <file>",
)
REBOOT = Fix("Boot the kernel that the modules on disk were built for", verify=f"ls -l {UVM_NODE}", on=("host",), reboot=True)
WITH_UVM = again(
    "Recreate the container with the node: the host has it, but a list of --device must name it",
    "run --rm <all_gpus> --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools <image> nvidia-smi",
    spec="request the GPU (resources.limits, nvidia.com/gpu: 1) instead of mounting single nodes",
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
    kept_out = None if loaded else kept_out_by(facts)
    fixes = (TAKE_OUT,) if kept_out else ways_to_uvm(facts, loaded)
    words = f"{wrong}; the module nvidia_uvm is {'' if loaded else 'not '}loaded"
    words += f", because {kept_out} replaces its loading with another command" if kept_out else ""
    return replace(UVM, fixes=fixes).found(words, {"loaded": loaded, "file": kept_out}, confidence=sure)


def kept_out_by(facts: Facts) -> str | None:
    """The file in modprobe.d whose rule `install` runs another command instead of loading nvidia_uvm."""
    options = known(lambda: facts.driver.modprobe_options, {})
    return next((path for path, text in options.items() if KEPT_OUT.search(text)), None)


def ways_to_uvm(facts: Facts, loaded: bool) -> tuple[Fix, ...]:
    """A module whose file was removed by a kernel upgrade cannot be loaded before the next boot."""
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
    """What is wrong with the node. The module gets another major number at each boot, but a container, or a script that makes
    the node, keeps the old one."""
    node = facts.devices.nodes.get(UVM_NODE)
    is_read = facts.container.engine or not facts.texts.alone  # in a text the two can be of different boots
    major = known(lambda: facts.driver.character_devices.get("nvidia-uvm")) if is_read else None
    if node is None:
        return f"{UVM_NODE} does not exist"
    if not node.is_device:
        return f"{UVM_NODE} is not a device node"
    if major is not None and node.major != major:
        return f"{UVM_NODE} has major number {node.major}, the module has {major}"
    return f"opening {UVM_NODE} fails with {node.open_error}" if node.open_error in ("ENXIO", "ENODEV") else None
