"""The driver could initialise every GPU that it found.

What it means
After the module is loaded it starts every GPU: memory, firmware processor (GSP), display. A GPU that fails here is bound to
the driver but missing everywhere else; nvidia-smi says "No devices were found".

How it is judged
Lines "RmInitAdapter failed!" in the kernel log, of GPUs that NVML does not list now. The three numbers behind them (failing
step, status, line in the source) are for NVIDIA; "unexpected WPR2 already up" names one cause that has a cure.

Known exceptions
A GPU that failed at first and works now is healthy; where NVML lists all, the log is not read. Where the driver
also gave an Xid 143 for it, that is the diagnosis. The kernel log may not be readable without root.

References
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/876
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.model import NEW_INITRAMFS, Action, Check, Finding, Fix, Problem, Skip, Unavailable

POWER_OFF = Fix(
    "Power off fully (laptop: remove the mains plug; server: from the BMC), wait, and start again",
    risk="disruptive",
    needs=("reboot",),
    verify="nvidia-smi",
)

WPR2 = Problem(
    id="rminitadapter-wpr2-bad-state",
    title="A GPU kept its firmware's state from before and cannot start again",
    why="Its protected memory (WPR2) was not torn down by a crash, a kexec, a failed reset or a virtual machine, so that its "
    "firmware processor cannot boot. Only a reset of the hardware clears it.",
    action=Action.RESET_GPU,
    fixes=(
        Fix(
            "Stop what uses the driver and reset the device",
            "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && "
            "echo 1 | sudo tee /sys/bus/pci/devices/<gpu>/reset && sudo modprobe nvidia",
            risk="disruptive",
            needs=("drain",),
            verify="nvidia-smi",
        ),
        POWER_OFF,
        Fix(
            "Laptops: if it comes back, switch off the driver's power management of an idle GPU",
            "echo 'options nvidia NVreg_DynamicPowerManagement=0x00' | sudo tee /etc/modprobe.d/nvidia-idle.conf && "
            f"{NEW_INITRAMFS} && sudo reboot",
        ),
    ),
    references=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/876",),
)

FAILED = Problem(
    id="gpu-initialisation-failed",
    title="The driver could not initialise a GPU",
    why="The module found the GPU and gave up while starting it. The lines before it in the kernel log say at what: power, "
    "link, firmware of the board, or a bug of the driver.",
    action=Action.REBOOT,
    fixes=(
        Fix("Read what the driver says before it gives up", "sudo dmesg | grep -B 12 'RmInitAdapter failed' | tail -n 40"),
        POWER_OFF,
        Fix(
            "If it stays: another driver branch, the newest firmware of the board, another slot and power cable; report it with",
            "sudo nvidia-bug-report.sh",
        ),
    ),
)

GAVE_UP = re.compile(
    r"NVRM: (?:GPU (?P<gpu>[0-9a-f:.]+): )?RmInitAdapter failed! \((?P<code>0x[0-9a-f]+:0x[0-9a-f]+:\d+)\)", re.I
)
GPU_INIT_ERROR = 143


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the kernel module lives in Windows")
    if facts.driver.module_version is None:
        raise Skip("no NVIDIA kernel module is loaded here")
    bound = [gpu.address for gpu in facts.pci.gpus if gpu.driver == "nvidia"]
    absent = [address for address in bound if not facts.nvml.reaches(address)]
    if not absent:
        return
    failed = failures(facts, absent)
    if not failed and not facts.kernel_log.complete:
        raise Unavailable("the kernel log has forgotten the start of the driver")
    reported = {xid.pci for xid in facts.kernel_log.xids if xid.code == GPU_INIT_ERROR}
    for address, code in failed.items():
        if address.rpartition(".")[0] not in reported:
            yield found(facts, address, code)


def failures(facts: Facts, absent: list[str]) -> dict[str, str]:
    """Absent GPU -> the numbers of its last failure. Where older drivers do not say which one failed, it is each of them."""
    failed: dict[str, str] = {}
    for words in filter(None, (GAVE_UP.search(line.text) for line in facts.kernel_log.lines)):
        named = words["gpu"]
        failed.update((address, words["code"]) for address in absent if named is None or address == named.lower())
    return failed


def found(facts: Facts, address: str, code: str) -> Finding:
    evidence, others = {"gpu": address, "code": code}, facts.nvml.reaches_any
    wpr2 = facts.kernel_log.matching("unexpected WPR2 already up")
    if wpr2:
        return WPR2.found(
            f"{address}: WPR2 is already up, RmInitAdapter failed ({code})", {**evidence, "log": wpr2[-1].text}, partial=others
        )
    return FAILED.found(f"{address}: RmInitAdapter failed ({code})", evidence, partial=others)


def summary(facts: Facts) -> str:
    return f"{len(facts.nvml.reachable)} initialised"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="driver",
    problems=(WPR2, FAILED),
    needs=("kernel-module",),
)
