"""An NVIDIA GPU is on the PCI bus, answers, and is free for the NVIDIA driver.

What it means
The bus is the lowest rung: a GPU that is not there cannot be repaired by any driver. One that is there may not answer (link
down), may have got no address space from the firmware, or may be reserved for a virtual machine.

How it is judged
/sys/bus/pci/devices: display controllers of vendor 10de. A configuration space of ones, or the driver's word in the kernel
log, means that the device does not answer. A framebuffer region without an address was not assigned by the firmware.

Known exceptions
Under WSL2 the GPU is no PCI device. In a container /sys shows the host's bus, also where the container was given no GPU.

References
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862
https://github.com/NVIDIA/NVSentinel/issues/155
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.pci import PciFunction
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

NO_GPU = Problem(
    id="no-nvidia-gpu",
    title="There is no NVIDIA GPU on this machine",
    why="No device of NVIDIA is on the PCI bus. In a virtual machine the GPU must be passed through by the host; in a cloud the "
    "instance type must have one.",
    action=Action.NONE,
    fixes=(
        Fix(
            "On a machine that should have one: seat the card and its power cable, then look at the bus", verify="lspci -d 10de:"
        ),
        Fix("In a virtual machine: choose an instance type with a GPU, or pass one through", verify="lspci -d 10de:"),
    ),
)

FALLEN_OFF = Problem(
    id="gpu-fallen-off-bus-probe",
    title="A GPU does not answer on the PCI bus",
    why="The device is listed, but reads from it return nothing: its link or its power is gone, or the board is dying.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        Fix(
            "Switch the machine off, wait, and on again (a warm reboot may not be enough)", risk="disruptive", verify="nvidia-smi"
        ),
        Fix(
            "If it comes back: reseat card and power, try another slot, read the BMC's log",
            command="sudo ipmitool sel list | tail",
        ),
    ),
    references=("https://github.com/NVIDIA/NVSentinel/issues/155",),
)

NO_ADDRESS = Problem(
    id="bar-not-assigned-above-4g",
    title="The firmware gave a GPU no address space for its memory",
    why="The GPU's memory window does not fit below 4 GB. 'Above 4G Decoding' (and for new cards 'Resizable BAR') is off in the "
    "firmware, or the virtual machine's window is too small.",
    action=Action.REBOOT,
    fixes=(
        Fix(
            "In the firmware setup switch on 'Above 4G Decoding' and 'Resizable BAR', switch off CSM",
            needs=("reboot",),
            verify="nvidia-smi",
        ),
        Fix(
            "Or let the kernel assign the regions anew (Debian, Ubuntu, Fedora: add the parameter, then reboot)",
            command="sudo sed -i.bak 's/^GRUB_CMDLINE_LINUX=\"/&pci=realloc /' /etc/default/grub && sudo update-grub && sudo reboot",
            verify="nvidia-smi",
            on=("debian",),
        ),
        Fix(
            "Or let the kernel assign the regions anew",
            command="sudo grubby --update-kernel=ALL --args=pci=realloc && sudo reboot",
            on=("rhel",),
        ),
        Fix("QEMU with OVMF: -fw_cfg name=opt/ovmf/X-PciMmio64Mb,string=262144"),
    ),
    references=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862",),
)

VFIO = Problem(
    id="gpu-bound-to-vfio",
    title="A GPU is reserved for a virtual machine",
    why="vfio-pci holds the device, so that it can be passed through; the NVIDIA driver of this host cannot see it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "If this host should use it: hand it to the NVIDIA driver until the next boot",
            command="echo <gpu> | sudo tee /sys/bus/pci/drivers/vfio-pci/unbind && echo nvidia | sudo tee "
            "/sys/bus/pci/devices/<gpu>/driver_override && echo <gpu> | sudo tee /sys/bus/pci/drivers/nvidia/bind",
            verify="nvidia-smi",
        ),
        Fix(
            "For good: take its ids out of vfio-pci.ids and /etc/modprobe.d, rebuild the initramfs and boot again",
            needs=("root", "reboot"),
        ),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the GPU is no PCI device")
    if not facts.pci.gpus:
        yield NO_GPU.found("no display controller of NVIDIA (vendor 10de) is on the PCI bus")
    for gpu in facts.pci.gpus:
        yield from judge_gpu(gpu)


def judge_gpu(gpu: PciFunction) -> Iterator[Finding]:
    if not gpu.responds:
        yield FALLEN_OFF.found(f"{gpu.address} returns only ones", {"gpu": gpu.address})
    elif gpu.driver in ("vfio-pci", "pci-stub"):
        yield VFIO.found(f"{gpu.address} is bound to {gpu.driver}", {"gpu": gpu.address, "driver": gpu.driver})
    elif gpu.framebuffer_bar[0] == 0:
        yield NO_ADDRESS.found(f"{gpu.address} has no address for its framebuffer", {"gpu": gpu.address})


def summary(facts: Facts) -> str:
    return f"{len(facts.pci.gpus)} on the PCI bus"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="hardware",
    problems=(NO_GPU, FALLEN_OFF, NO_ADDRESS, VFIO),
)
