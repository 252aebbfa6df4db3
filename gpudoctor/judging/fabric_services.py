"""Why Fabric Manager does not run where it is installed.

https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
"""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.services import Unit
from gpudoctor.model import NEW_INITRAMFS, Action, Confidence, Finding, Fix, Problem, Skip, fix_on

LOOK = "systemctl is-active nvidia-fabricmanager && nvidia-smi -q | grep -A 3 Fabric"
LOG = Fix("See why it does not stay up", "sudo journalctl -u nvidia-fabricmanager -n 50 --no-pager", on=("host",))
START = "sudo modprobe ib_umad && sudo systemctl restart nvidia-fabricmanager"
WITH_SUBNETS = ((10, 0), (10, 3))  # the boards with B200 and B300, whose NVLink is a network of InfiniBand's kind

SUBNET_MANAGER = Problem(
    id="nvlink-subnet-manager-missing",
    title="Fabric Manager lacks NVLink's subnet manager (nvlsm)",
    why="On boards with B200 or B300 Fabric Manager starts nvlsm, which sets up the NVLinks through the module ib_umad. Without "
    "either it ends, and CUDA answers 'system not yet initialized' (802).",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Install it from NVIDIA's repository, load its module, then start Fabric Manager again",
            verify=LOOK,
            debian=f"sudo apt install nvlsm && echo ib_umad | sudo tee /etc/modules-load.d/ib_umad.conf && {START}",
            rhel=f"sudo dnf install nvlsm && echo ib_umad | sudo tee /etc/modules-load.d/ib_umad.conf && {START}",
            suse=f"sudo zypper install nvlsm && echo ib_umad | sudo tee /etc/modules-load.d/ib_umad.conf && {START}",
        ),
        LOG,
    ),
    references=("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",),
)


def subnet_manager(facts: Facts) -> Finding | None:
    """On a board that needs it: the package or the module is not there, and Fabric Manager does not run."""
    unit = facts.services.unit("nvidia-fabricmanager")
    if facts.system.is_container or unit is None or unit.is_active:
        return None
    if not any(gpu.compute_capability in WITH_SUBNETS for gpu in facts.nvml.reachable.values()):
        return None
    lacking = [] if any(package.name == "nvlsm" for package in facts.driver.packages) else ["the package nvlsm is not installed"]
    lacking += [] if "ib_umad" in facts.driver.loaded_modules else ["the module ib_umad is not loaded"]
    if not lacking:
        return None
    said = said_by_manager(facts)
    return SUBNET_MANAGER.found(f"nvidia-fabricmanager is {unit.active}; {' and '.join(lacking)}", {"log": said} if said else {})


def said_by_manager(facts: Facts) -> str:
    try:
        lines = (facts.services.fabric_manager_log or "").splitlines()
    except Skip:
        return ""
    return next((line for line in reversed(lines) if "nvlsm" in line.lower()), "")


def ways(unit: Unit) -> tuple[Fix, ...]:
    """Where it is installed: one that was stopped wants to be started, one that failed has said why."""
    unmask = "sudo systemctl unmask nvidia-fabricmanager && " if "masked" in (unit.load, unit.enabled) else ""
    start = Fix("Start it, now and at each boot", f"{unmask}sudo systemctl enable --now nvidia-fabricmanager", verify=LOOK)
    return (LOG, start) if unit.active == "failed" else (start, LOG)


IN_GUEST = (
    Fix(
        "On the host, before this machine starts: see that Fabric Manager runs, and activate the partition with these GPUs",
        "systemctl is-active nvidia-fabricmanager; fmpm -l; fmpm -a PARTITION",
        verify=LOOK,
    ),
    Fix(
        "For GPUs that need no NVLink: switch it off in this machine, then reboot",
        "echo 'options nvidia NVreg_NvLinkDisable=1' | sudo tee /etc/modprobe.d/nvidia-nvlink.conf && "
        f"{NEW_INITRAMFS} && sudo reboot",
        verify=LOOK,
        undo="sudo rm /etc/modprobe.d/nvidia-nvlink.conf",
    ),
)


def in_guest(facts: Facts, not_running: Problem) -> Finding | None:
    """In a virtual machine that has GPUs of a board and none of its switches, nothing that is installed helps."""
    if facts.system.is_container or not is_guest(facts):
        return None
    unit = facts.services.unit("nvidia-fabricmanager")
    said = ", so that its Fabric Manager has nothing to manage" if unit and not unit.is_active else ""
    problem = replace(
        not_running,
        title="The host has not activated the NVLink fabric for this virtual machine",
        why="The GPUs of an HGX board wait for their NVSwitches, which stayed with the host: its Fabric Manager must activate "
        "the partition with these GPUs. Until then CUDA answers 'system not yet initialized' (802).",
        action=Action.FIX_CONFIG,
        fixes=IN_GUEST,
    )
    return problem.found(
        f"the fabric is not ready, which is for the host to do: this virtual machine has no NVSwitch{said}",
        {"hypervisor": facts.system.hypervisor, "service": unit.active if unit else None},
        confidence=Confidence.LIKELY,
    )


def is_guest(facts: Facts) -> bool:
    """The switches of B200 and B300 are on no PCI bus, also where they are there."""
    has_subnets = any(gpu.compute_capability in WITH_SUBNETS for gpu in facts.nvml.reachable.values())
    return bool(facts.system.hypervisor) and not facts.pci.nvswitches and not has_subnets
