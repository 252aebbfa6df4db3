"""An NVIDIA GPU is on the PCI bus, answers, and is available to the NVIDIA driver.

What it means
If a GPU is not on the bus, no driver can use it. A GPU on the bus may not answer (link down), may have no address space from the
firmware, or may be reserved for a virtual machine.

How it is judged
The check lists display controllers of vendor 10de in /sys/bus/pci/devices. If the configuration space reads as ones, or the
driver reports it in the kernel log, the device does not answer. If the framebuffer region (NVIDIA's BAR1) has no address, the
firmware did not assign one; the driver's log shows that too. On a laptop, a udev rule, a graphics mode tool or a firmware
switch may have removed the GPU from the bus.

Known exceptions
A GPU that NVML lists works, whatever the log says about earlier faults. Under WSL2 and on a Jetson the GPU is not a PCI device.
In a container /sys shows the host's bus: GPUs that the container did not get are not judged. For a failed command
that names nothing of GPUs, nor does its output, it is a note that there is none.

References
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862
https://github.com/NVIDIA/NVSentinel/issues/155
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.pci import PciFunction
from gpudoctor.fixes.common import ASK_PROVIDER, look
from gpudoctor.judging import expected, own_errors
from gpudoctor.judging.driver.graphics_modes import SWITCHED_OFF, switched_off, without_power
from gpudoctor.judging.driver.passed_on import is_passed_on
from gpudoctor.model import NEW_INITRAMFS, Action, Check, Finding, Fix, Problem, Skip, Status, Unavailable, for_each

NOT_LISTED = "no NVIDIA display controller (vendor 10de) is on the PCI bus"
ON_THE_BUS = "grep -l 0x10de /sys/bus/pci/devices/*/vendor"
NO_GPU = Problem(
    id="no-nvidia-gpu",
    title="This machine has no NVIDIA GPU",
    why="No NVIDIA device is on the PCI bus. For a virtual machine, the host must pass a GPU through. In a cloud, the instance "
    "type must include one.",
    action=Action.NONE,
    fixes=(
        look("Check on the host; start this container on a host that has a GPU", "nvidia-smi -L", on=("container",)),
        Fix(
            "On a machine that should have one: reseat the card and its power cable, then check the bus",
            verify=ON_THE_BUS,
            on=("physical",),
        ),
        Fix("In a virtual machine: choose an instance type with a GPU, or pass a GPU through", verify=ON_THE_BUS),
        Fix("On a laptop: enable the dedicated GPU in the firmware, and hybrid graphics in the desktop settings"),
    ),
)

FALLEN_OFF = Problem(
    id="gpu-fallen-off-bus-probe",
    title="A GPU does not answer on the PCI bus",
    why="The device is listed, but does not answer reads: its link or its power is lost, or the board is failing.",
    action=Action.REPLACE_HARDWARE,
    unfit=True,
    fixes=(
        Fix(
            "Power the machine off, wait, then power it on (a warm reboot may not be enough)",
            risk="disruptive",
            verify="nvidia-smi",
        ),
        look(
            "Read the BMC's log",
            "sudo ipmitool sel list | tail",
            on=("bmc",),
            root=True,
        ),
        Fix("If it recurs: reseat the card and power plugs, try another slot", on=("physical",)),
    ),
    references=("https://github.com/NVIDIA/NVSentinel/issues/155",),
)

STAY_AWAKE = Fix(
    "Disable the driver's power management of idle GPUs, so that it does not sleep again",
    f"echo 'options nvidia NVreg_DynamicPowerManagement=0x00' | sudo tee /etc/modprobe.d/nvidia-idle.conf && {NEW_INITRAMFS}",
    verify="nvidia-smi",
    on=("host",),
    kind="set",
    reboot=True,
    undo=f"sudo rm /etc/modprobe.d/nvidia-idle.conf && {NEW_INITRAMFS}",
)
IN_VM = Fix(
    "In a QEMU virtual machine, on its host: use OVMF instead of SeaBIOS, and enlarge its 64-bit window (libvirt: a qemu:arg in "
    "the domain's XML; Proxmox: args in its configuration): -fw_cfg name=opt/ovmf/X-PciMmio64Mb,string=262144",
)
IN_VSPHERE = Fix(
    "In vSphere, for the powered-off virtual machine: use EFI firmware, and set pciPassthru.use64bitMMIO=TRUE and "
    "pciPassthru.64bitMMIOSizeGB to a power of two above the memory of all its GPUs"
)
IN_HYPER_V = Fix(
    "On the Hyper-V host, for the stopped virtual machine: raise its window (Set-VM -HighMemoryMappedIoSpace) above the memory "
    "of all its GPUs"
)
WINDOWS_OF_VMS = {"kvm": (IN_VM,), "unknown": (IN_VM,), "xen": (), "vmware": (IN_VSPHERE,), "hyper-v": (IN_HYPER_V,)}
BIGGER_WINDOW = "pci=realloc"
NO_ADDRESS = Problem(
    id="bar-not-assigned-above-4g",
    title="The firmware assigned no address space for a GPU's memory",
    why="The GPU's memory window does not fit below 4 GB. 'Above 4G Decoding' (and 'Resizable BAR' for new cards) is disabled "
    "in the firmware, or the virtual machine's window is too small.",
    action=Action.REBOOT,
    unfit=True,
    fixes=(
        Fix(
            "On a physical machine, in the firmware setup: enable 'Above 4G Decoding' and 'Resizable BAR', disable CSM",
            needs=("reboot",),
            risk="disruptive",
            verify="nvidia-smi",
            on=("physical",),
        ),
        Fix(
            "Let the kernel reassign the regions",
            command=f"sudo sed -i.bak 's/^GRUB_CMDLINE_LINUX=\"/&{BIGGER_WINDOW} /' /etc/default/grub && sudo update-grub",
            verify="nvidia-smi",
            on=("debian",),
            kind="set",
            reboot=True,
            undo="sudo mv /etc/default/grub.bak /etc/default/grub && sudo update-grub",
        ),
        Fix(
            "Let the kernel reassign the regions",
            command=f"sudo grubby --update-kernel=ALL --args={BIGGER_WINDOW}",
            verify="nvidia-smi",
            on=("rhel",),
            kind="set",
            reboot=True,
            undo="sudo grubby --update-kernel=ALL --remove-args=pci=realloc",
        ),
        IN_VM,
    ),
    references=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862",),
)

FREE = (
    Fix(
        "If this host should use it: bind it to the NVIDIA driver until the next boot",
        command="echo <gpu> | sudo tee /sys/bus/pci/devices/<gpu>/driver/unbind && echo nvidia | sudo tee "
        "/sys/bus/pci/devices/<gpu>/driver_override && sudo modprobe nvidia && echo <gpu> | sudo tee "
        "/sys/bus/pci/drivers_probe",
        risk="disruptive",
        verify="nvidia-smi",
        kind="restart",
        needs=("root",),
    ),
    Fix(
        "To fix it permanently: remove its ids from vfio-pci.ids and /etc/modprobe.d, rebuild the initramfs, reboot",
        command="grep -rn vfio /etc/modprobe.d /etc/default/grub",
        needs=("root", "reboot"),
        kind="read",
    ),
)
VFIO = Problem(
    id="gpu-bound-to-vfio",
    title="A GPU is reserved for a virtual machine",
    why="The device is bound to vfio-pci, so that it can be passed through. The NVIDIA driver of this host cannot use it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=FREE,
)

ALL_VFIO = Problem(
    id="every-gpu-bound-to-vfio",
    title="Every GPU is reserved for virtual machines, the host can use none",
    why="All GPUs are bound to vfio-pci, so that they can be passed through. On a host of virtual machines that is expected: run "
    "the check inside the virtual machines.",
    action=Action.FIX_CONFIG,
    fixes=FREE,
)

JETSON = {"nvgpu", "nvmap"}
RESERVED = ("vfio-pci", "pci-stub")
ASLEEP = r"(\S+): Unable to change power state from D3\w* to D0, device inaccessible"
FALLEN = r"The NVIDIA GPU (\S+) \(PCI ID: 10de:\w+\) installed in this system has fallen off the bus and is not responding"
INVALID_REGION = r"BAR\d is 0M @ 0x0 \(PCI:(\S+)\)"


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the GPU is not a PCI device")
    gpus = facts.pci.gpus
    if not gpus:
        yield from no_gpu(facts)
    elif all(is_reserved(gpu) for gpu in gpus):
        if is_passed_on(facts):
            raise Skip("the GPUs are bound to vfio-pci, and the text shows the virtual machine that gets them")
        addresses = [gpu.address for gpu in gpus]
        yield ALL_VFIO.found(f"{', '.join(addresses)}: bound to {gpus[0].driver}", {"gpu": addresses[0], "gpus": addresses})
    else:
        yield from for_each(gpus, lambda gpu: () if is_foreign(facts, gpu) else judge_gpu(facts, gpu))


def is_reserved(gpu: PciFunction) -> bool:
    """Whether a driver for virtual machines holds the GPU; False if its driver is unknown."""
    return known(lambda: gpu.driver) in RESERVED


def is_foreign(facts: Facts, gpu: PciFunction) -> bool:
    """Whether a GPU belongs to the host only: all GPU nodes of this container belong to other, working GPUs."""
    if not facts.nvml.reaches_any or facts.nvml.reaches(gpu.address) or not facts.container.engine:
        return False
    return len(facts.devices.gpu_nodes) <= len(facts.nvml.reachable)


def no_gpu(facts: Facts) -> Iterator[Finding]:
    if known(lambda: facts.nvml.count) or known(lambda: facts.cuda.count):
        raise Skip("the GPU is not a PCI device here, but the driver lists it")
    if known(lambda: facts.driver.loaded_modules & JETSON) or "tegra" in (known(lambda: facts.system.kernel) or ""):
        raise Skip("on a Jetson the GPU is not a PCI device")
    off = None if known(lambda: facts.container.engine) else known(lambda: switched_off(facts))
    found = NO_GPU.found(NOT_LISTED, {"other_display": facts.pci.other_display})
    if number := expected.number_of_gpus(facts):
        problem = replace(NO_GPU, title=f"This machine has 0 of {number} expected NVIDIA GPUs")
        found = problem.found(f"0 of {number} expected: {NOT_LISTED}", {"expected": number})
    elif known(lambda: own_errors.needs_no_gpu(facts)):
        found = replace(found.as_note, without_gpus=True)
    yield off or found


def judge_gpu(facts: Facts, gpu: PciFunction) -> Iterator[Finding]:
    others = facts.nvml.reaches_any
    if is_reserved(gpu) and is_passed_on(facts):
        return
    elif is_reserved(gpu):
        yield VFIO.found(f"{gpu.address} is bound to {gpu.driver}", {"gpu": gpu.address, "driver": gpu.driver})
    elif facts.nvml.reaches(gpu.address):
        return
    elif gpu.address in said_by_driver(facts, FALLEN):
        yield FALLEN_OFF.found(f"{gpu.address} did not answer when the driver probed it", {"gpu": gpu.address}, partial=others)
    elif not gpu.responds and (off := without_power(facts, gpu.address)):
        yield off
    elif not gpu.responds:
        asleep = gpu.address in kept_asleep(facts)
        words = "; it did not wake from its power-saving state D3" if asleep else ""
        words = "; it fell off the bus while it was running (Xid 79)" if fell_off_later(facts, gpu) else words
        problem = replace(FALLEN_OFF, fixes=(STAY_AWAKE, *FALLEN_OFF.fixes)) if asleep else FALLEN_OFF
        yield problem.found(f"all reads from {gpu.address} return ones{words}", {"gpu": gpu.address}, partial=others)
    else:
        yield from address_space(facts, gpu)


def address_space(facts: Facts, gpu: PciFunction) -> Iterator[Finding]:
    others, problem = facts.nvml.reaches_any, without_address(facts)
    if gpu.address in said_by_driver(facts, INVALID_REGION):
        yield problem.found(f"the driver reports that BAR1 of {gpu.address} is 0M @ 0x0", {"gpu": gpu.address}, partial=others)
    elif not gpu.bars:
        raise Unavailable(f"the address regions of {gpu.address} could not be read")
    elif gpu.framebuffer_bar[0] == 0:
        yield problem.found(f"{gpu.address} has no address for its framebuffer (BAR1)", {"gpu": gpu.address}, partial=others)


def without_address(facts: Facts) -> Problem:
    """In a virtual machine, no setting of the guest enlarges the window that its firmware got from the hypervisor."""
    hypervisor = known(lambda: facts.system.hypervisor)
    if hypervisor is None or facts.system.wsl:
        return NO_ADDRESS
    why = "The GPU's memory window does not fit into the address space that the hypervisor gave to this virtual machine."
    return replace(NO_ADDRESS, why=why, action=Action.FIX_CONFIG, fixes=(*WINDOWS_OF_VMS.get(hypervisor, ()), ASK_PROVIDER))


def fell_off_later(facts: Facts, gpu: PciFunction) -> bool:
    return known(lambda: any(xid.code == 79 and gpu.address.startswith(xid.pci) for xid in facts.kernel_log.xids), False)


def kept_asleep(facts: Facts) -> set[str]:
    """The addresses of devices that the kernel could not wake."""
    lines = known(lambda: facts.kernel_log.matching(ASLEEP), ())
    return {match[1].lower() for line in lines if (match := re.search(ASLEEP, line.text))}


def said_by_driver(facts: Facts, pattern: str) -> set[str]:
    """The addresses for which the log has this message; empty if the log is not readable."""
    return known(lambda: {address.lower() for address in re.findall(pattern, facts.kernel_log.nvrm)}, set())


def summary(facts: Facts) -> str:
    count = len(facts.pci.gpus)
    return f"{count} GPU{'s' * (count != 1)} on the PCI bus"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_GPU, SWITCHED_OFF, FALLEN_OFF, NO_ADDRESS, VFIO, ALL_VFIO),
)
