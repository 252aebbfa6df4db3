"""Why an installed Fabric Manager does not run.

https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
"""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.services import Unit
from gpudoctor.fixes.common import install_on, look
from gpudoctor.model import NEW_INITRAMFS, Action, Confidence, Finding, Fix, Problem

LOOK = "systemctl is-active nvidia-fabricmanager && nvidia-smi -q | grep -A 3 Fabric"
LOG = look("Read in its log why it stops", "sudo journalctl -u nvidia-fabricmanager -n 50 --no-pager", on=("host",), root=True)
RESTART = "sudo systemctl restart nvidia-fabricmanager"
MODULES = ("mlx5_ib", "ib_umad")  # the driver of the switches' InfiniBand adapters, and of the nodes that manage them
LOAD = "printf '%s\\n' <modules> | sudo tee /etc/modules-load.d/nvswitch.conf && sudo modprobe -a <modules>"
WITH_SUBNETS = ((10, 0), (10, 3))  # boards with B200 and B300, whose NVLink is managed like an InfiniBand network

GUIDE = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"

SUBNET_MANAGER = Problem(
    id="nvlink-subnet-manager-missing",
    title="Fabric Manager lacks NVLink's subnet manager (nvlsm)",
    why="On boards with B200 or B300 Fabric Manager starts nvlsm, which sets up the NVLinks. Without it Fabric Manager exits, "
    "and CUDA fails with 'system not yet initialized' (802).",
    action=Action.INSTALL,
    fixes=(
        *install_on(
            "Install it from NVIDIA's repository, then restart Fabric Manager",
            verify=LOOK,
            debian=f"sudo apt install nvlsm && {RESTART}",
            rhel=f"sudo dnf install nvlsm && {RESTART}",
            suse=f"sudo zypper install nvlsm && {RESTART}",
            undos={"debian": "sudo apt remove nvlsm", "suse": "sudo zypper remove nvlsm"},
        ),
        LOG,
    ),
    references=(GUIDE,),
)
UMAD = Problem(
    id="fabricmanager-ib-umad-missing",
    title="Fabric Manager cannot reach the NVSwitches: ib_umad is not loaded",
    why="On boards with B200 or B300 the NVLinks are managed like an InfiniBand network: Fabric Manager and nvlsm set them up "
    "through /dev/infiniband/umad*, which ib_umad creates. Without it they exit, and CUDA fails with 'system not yet "
    "initialized' (802).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Load the missing modules, now and at every boot, then restart Fabric Manager",
            f"{LOAD} && {RESTART}",
            verify=LOOK,
            on=("host",),
            kind="restart",
            needs=("root",),
            undo="sudo rm /etc/modules-load.d/nvswitch.conf",
        ),
        Fix(
            "If modprobe does not find it: install the kernel's package of extra modules",
            "sudo apt install linux-modules-extra-$(uname -r)",
            on=("debian",),
            undo="sudo apt remove linux-modules-extra-$(uname -r)",
            kind="install",
            needs=("root",),
        ),
        LOG,
    ),
    references=(GUIDE,),
)


def subnet_manager(facts: Facts) -> Finding | None:
    """Report a missing nvlsm or module on a board that needs them, if Fabric Manager does not run."""
    unit = facts.services.unit("nvidia-fabricmanager")
    if facts.system.is_container or unit is None or unit.is_active or not has_subnets(facts):
        return None
    modules = [name for name in MODULES if name not in facts.driver.loaded_modules]
    not_loaded = f"{' and '.join(modules)} {'is' if len(modules) == 1 else 'are'} not loaded"
    words, evidence = f"nvidia-fabricmanager is {unit.active}", {"modules": modules, "log": said_by_manager(facts)}
    evidence = {name: value for name, value in evidence.items() if value}
    if not any(package.name == "nvlsm" for package in facts.driver.packages):
        problem = loading_too(SUBNET_MANAGER) if modules else SUBNET_MANAGER
        return problem.found(f"{words}; the package nvlsm is not installed{f', {not_loaded}' if modules else ''}", evidence)
    if not modules:
        return None
    problem = replace(UMAD, title=f"Fabric Manager cannot reach the NVSwitches: {not_loaded}")
    return problem.found(f"{words}; nvlsm is installed, {not_loaded}", evidence)


def loading_too(problem: Problem) -> Problem:
    """The same problem if the modules are not loaded either: the fixes load them as well."""
    fixes = (replace(fix, command=fix.command.replace(RESTART, f"{LOAD} && {RESTART}")) for fix in problem.fixes)
    return replace(problem, fixes=tuple(fixes))


def has_subnets(facts: Facts) -> bool:
    return any(gpu.compute_capability in WITH_SUBNETS for gpu in facts.nvml.reachable.values())


def said_by_manager(facts: Facts) -> str:
    lines = (known(lambda: facts.services.fabric_manager_log) or "").splitlines()
    return next((line for line in reversed(lines) if "nvlsm" in line.lower()), "")


def ways(unit: Unit) -> tuple[Fix, ...]:
    """Fixes for an installed service: start it first if it was stopped, read its log first if it failed."""
    unmask = "sudo systemctl unmask nvidia-fabricmanager && " if "masked" in (unit.load, unit.enabled) else ""
    start = Fix(
        "Start it, now and at every boot",
        f"{unmask}sudo systemctl enable --now nvidia-fabricmanager",
        verify=LOOK,
        kind="restart",
        needs=("root",),
    )
    return (LOG, start) if unit.active == "failed" else (start, LOG)


IN_GUEST = (
    Fix(
        "On the host, before this virtual machine starts: check Fabric Manager, then activate these GPUs' partition",
        "systemctl is-active nvidia-fabricmanager; fmpm -l; fmpm -a <partition>",
        verify=LOOK,
    ),
    Fix(
        "If the GPUs do not need NVLink: disable it in this virtual machine, then reboot",
        f"echo 'options nvidia NVreg_NvLinkDisable=1' | sudo tee /etc/modprobe.d/nvidia-nvlink.conf && {NEW_INITRAMFS}",
        verify=LOOK,
        undo="sudo rm /etc/modprobe.d/nvidia-nvlink.conf",
        kind="set",
        reboot=True,
    ),
)


def in_guest(facts: Facts, not_running: Problem) -> Finding | None:
    """Report a virtual machine with GPUs of a board, but without its switches: Fabric Manager cannot help there."""
    if facts.system.is_container or not is_guest(facts):
        return None
    unit = facts.services.unit("nvidia-fabricmanager")
    said = ", so its Fabric Manager has nothing to manage" if unit and not unit.is_active else ""
    problem = replace(
        not_running,
        title="The host has not activated the NVLink fabric for this virtual machine",
        why="The GPUs of an HGX board wait for their NVSwitches, which belong to the host: its Fabric Manager must activate the "
        "partition with these GPUs. Until then CUDA fails with 'system not yet initialized' (802).",
        action=Action.FIX_CONFIG,
        fixes=IN_GUEST,
    )
    return problem.found(
        f"the fabric is not ready, and only the host can set it up: this virtual machine has no NVSwitch{said}",
        {"hypervisor": facts.system.hypervisor, "service": unit.active if unit else None},
        confidence=Confidence.LIKELY,
    )


def is_guest(facts: Facts) -> bool:
    """Whether the host manages the fabric. The switches of B200 and B300 never appear on the PCI bus."""
    return bool(facts.system.hypervisor) and not facts.pci.nvswitches and not has_subnets(facts)
