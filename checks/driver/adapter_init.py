"""The driver could initialise every GPU that it found.

What it means
When the module is loaded, it initialises every GPU: memory, firmware processor (GSP), display. A GPU that fails here is bound
to the driver but missing everywhere else; nvidia-smi prints "No devices were found".

How it is judged
The check reads the "RmInitAdapter failed!" lines in the kernel log for GPUs that NVML does not list now. Of the three numbers in
such a line, the first is the step that failed, the second the driver's status and the third a line of its source. What the driver
wrote before the first failure counts most, then the numbers. Later failures are usually consequences, such as "unexpected WPR2
already up".

Known exceptions
A GPU that failed at first and works now is healthy; if NVML lists all GPUs, the log is not read. If the driver also reported
Xid 143 for the GPU, that is the diagnosis. Reading the kernel log may require root.

References
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/876
https://github.com/NVIDIA/open-gpu-kernel-modules/blob/595.45.04/src/nvidia/arch/nvalloc/unix/src/osinit.c
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.kernel_log import LogLine
from gpudoctor.facts.xids import is_in_windows
from gpudoctor.fixes.common import kernel_log, look, report_to_vendor
from gpudoctor.model import NEW_INITRAMFS, Action, Check, Confidence, Finding, Fix, Problem, Skip, Unavailable

OSINIT = "https://github.com/NVIDIA/open-gpu-kernel-modules/blob/595.45.04/src/nvidia/arch/nvalloc/unix/src/osinit.c"
READ = kernel_log("Read the driver's messages before the failure", "-B 12 'RmInitAdapter failed' | head -n 40")
REPORT = report_to_vendor("If it still fails: collect NVIDIA's bug report for the vendor's support", on=())

POWER_OFF = Fix(
    "Power off completely (laptop: unplug the charger; server: use the BMC), wait, then power on",
    risk="disruptive",
    needs=("reboot",),
    verify="nvidia-smi",
)

WPR2 = Problem(
    id="rminitadapter-wpr2-bad-state",
    title="A GPU still holds old firmware state and cannot be initialised",
    why="Its protected memory (WPR2) was not torn down at a crash, a kexec, a failed reset or the end of a virtual machine, so "
    "its firmware processor cannot boot. Only a hardware reset clears it.",
    action=Action.RESET_GPU,
    fixes=(
        Fix(
            "Stop all programs that use the driver, then reset the device",
            "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && "
            "echo 1 | sudo tee /sys/bus/pci/devices/<gpu>/reset && sudo modprobe nvidia",
            risk="disruptive",
            needs=("root", "drain"),
            verify="nvidia-smi",
            kind="reset",
        ),
        POWER_OFF,
        Fix(
            "If it recurs on a laptop: disable the driver's power management of idle GPUs",
            "echo 'options nvidia NVreg_DynamicPowerManagement=0x00' | sudo tee /etc/modprobe.d/nvidia-idle.conf && "
            f"{NEW_INITRAMFS}",
            kind="set",
            reboot=True,
            undo=f"sudo rm /etc/modprobe.d/nvidia-idle.conf && {NEW_INITRAMFS}",
        ),
    ),
    references=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/876",),
)

FAILED = Problem(
    id="gpu-initialisation-failed",
    title="The driver could not initialise a GPU",
    why="The module found the GPU but could not initialise it. The lines before the failure in the kernel log show why: power, "
    "link, the board's firmware, or a driver bug.",
    action=Action.REBOOT,
    fixes=(
        READ,
        POWER_OFF,
        report_to_vendor(
            "If it still fails: try another driver branch, the newest board firmware, another slot and power cable; then "
            "report it",
            on=(),
        ),
    ),
)

FIRMWARE_MISSING = Problem(
    id="gsp-firmware-missing",
    title="The GPU's firmware files (GSP) are missing",
    why="The module loads firmware of exactly its release from /lib/firmware/nvidia. The firmware package is not installed, is "
    "from another release, or is missing in the initramfs from which the module is loaded.",
    action=Action.INSTALL,
    fixes=(
        look("List the firmware files and show the module's release", "ls /lib/firmware/nvidia/; modinfo -F version nvidia"),
        Fix("Reinstall the driver's packages", verify="nvidia-smi", on=("host",), recipe="reinstall"),
        Fix(
            "If the files exist: add them to the initramfs",
            f"{NEW_INITRAMFS}",
            verify="nvidia-smi",
            kind="set",
            reboot=True,
        ),
    ),
    references=(OSINIT,),
)
FIRMWARE = Problem(
    id="gpu-firmware-does-not-start",
    title="The GPU's firmware processor does not start",
    why="The driver loads its firmware onto a processor on the GPU (GSP), which did not start. The GPU is in a bad state, its "
    "link or its board firmware is faulty, or this driver release has a bug with this GPU.",
    action=Action.REBOOT,
    fixes=(
        POWER_OFF,
        READ,
        Fix("If it still fails: try another driver branch, the newest mainboard and GPU firmware, no riser or adapter"),
        REPORT,
    ),
    references=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/876", OSINIT),
)
VBIOS = Problem(
    id="gpu-vbios-fails",
    title="The driver cannot read or run a GPU's board firmware (VBIOS)",
    why="The GPU does not start without its VBIOS. Laptops may hide it; a virtual machine may lack it or may have left the GPU "
    "half initialised; a flashed VBIOS may not be the original.",
    action=Action.REBOOT,
    fixes=(
        POWER_OFF,
        Fix("In a virtual machine: provide the GPU's ROM file, and use UEFI instead of BIOS (ask the owner of the host)"),
        Fix("If the VBIOS was modified: flash the original one; the driver accepts no other"),
        REPORT,
    ),
    references=("https://github.com/Bumblebee-Project/Bumblebee/issues/204",),
)
PROBLEMS = {problem.id: problem for problem in (WPR2, FIRMWARE_MISSING, FIRMWARE, VBIOS, FAILED)}

GAVE_UP = re.compile(
    r"""
    NVRM:\ (?: GPU\ (?P<gpu>[0-9a-f:.]+):[ ] )?
    RmInitAdapter\ failed!\ \( (?P<code> (?P<step>0x[0-9a-f]+) : (?P<status>0x[0-9a-f]+) : \d+ ) \)
    """,
    re.IGNORECASE | re.VERBOSE,
)
LOADED = re.compile(r"NVRM: loading NVIDIA UNIX.*? (?P<branch>\d{3})\.\d")
DEVICE = re.compile(r"PCI ID: 10de:([0-9a-f]{4})", re.I)
GPU_INIT_ERROR = 143
RECENT_BRANCH = 580  # long-term support; supports every Blackwell GPU
UNNAMED = "the GPU"  # old drivers do not name the GPU


class Failure(NamedTuple):
    """The driver could not initialise a GPU.

    before: the log since the driver was loaded or since its last failure. branch: the driver's branch.
    """

    gpu: str | None
    code: str
    step: int
    status: int
    before: str
    branch: int | None


def judge(facts: Facts) -> Iterator[Finding]:
    if is_in_windows(facts):
        raise Skip("under WSL the kernel module is in Windows")
    absent = absent_gpus(facts)
    if absent == []:
        return
    failed = first_failures(facts.kernel_log.lines, absent)
    if not failed and not facts.kernel_log.complete:
        raise Unavailable("the kernel log no longer contains the start of the driver")
    reported = {xid.pci for xid in facts.kernel_log.xids if xid.code == GPU_INIT_ERROR}
    for address, failure in failed.items():
        if address.rpartition(".")[0] not in reported:
            finding = found(facts.problems, address, failure, partial=absent is not None and facts.nvml.reaches_any)
            yield replace(finding, causes=(*finding.causes, *broken_before(facts, address)))


def broken_before(facts: Facts, address: str) -> Iterator[str]:
    """Problems from fatal Xids of this GPU: it cannot be initialised until it is reset."""
    rows = [knowledge.xid(xid.code) for xid in facts.kernel_log.xids if address.startswith(xid.pci + ".")]
    return (row.problem for row in rows if row and row.severity == "fatal" and row.problem)


def absent_gpus(facts: Facts) -> list[str] | None:
    """GPUs that are bound to the module but not listed by NVML; None if only a log is available."""
    try:
        if facts.driver.module_version is None:
            raise Skip("no NVIDIA kernel module is loaded")
        bound = [gpu.address for gpu in facts.pci.gpus if gpu.driver == "nvidia"]
        return [address for address in bound if not facts.nvml.reaches(address)]
    except Unavailable:
        if facts.kernel_log.source != "text":
            raise
        return None


def first_failures(lines: Sequence[LogLine], absent: list[str] | None) -> dict[str, Failure]:
    """Absent GPU -> its first failure since the module was loaded. A failure that names no GPU counts for each."""
    failed: dict[str, Failure] = {}
    for failure in failures(lines):
        if absent is None:
            failed.setdefault(failure.gpu or UNNAMED, failure)
        for address in absent or ():
            if failure.gpu in (None, address):
                failed.setdefault(address, failure)
    return failed


def failures(lines: Sequence[LogLine]) -> list[Failure]:
    given_up: list[Failure] = []
    before: list[str] = []
    branch = None
    for line in lines:
        if match := LOADED.search(line.text):
            given_up, before, branch = [], [], int(match["branch"])
        if match := GAVE_UP.search(line.text):
            gpu = match["gpu"].lower() if match["gpu"] else None
            step, status = int(match["step"], 16), int(match["status"], 16)
            given_up.append(Failure(gpu, match["code"], step, status, "\n".join(before), branch))
            before = []
        else:
            before.append(line.text)
    return given_up


def found(problems: Mapping[str, Problem], address: str, failure: Failure, partial: bool) -> Finding:
    known = knowledge.rm_failure(failure.step, failure.status, failure.before, failure.branch)
    step, status = knowledge.rm_step(failure.step, failure.branch), knowledge.rm_status(failure.status)
    message = f"{address}: RmInitAdapter failed ({failure.code})"
    message += f" while {step.words}" if step else ""
    message += f": {status.text}" if status else ""
    evidence: dict[str, object] = {"gpu": address, "code": failure.code, "log": last_words(failure.before)}
    if known is None:
        return FAILED.found(message, without_empty(evidence), partial=partial)
    evidence |= branches(failure.before)
    if known.confidence != "confirmed":
        evidence |= {"could_be": list(known.causes), "decide": known.decide}
    problem = PROBLEMS.get(known.problem) or problems[known.problem]
    finding = problem.found(f"{message}; {known.words}", without_empty(evidence), None, Confidence(known.confidence), partial)
    return replace(finding, causes=known.causes)


def branches(before: str) -> dict[str, int]:
    """The driver branches to install if the module has to change."""
    device = DEVICE.search(before)
    last = knowledge.last_branch(knowledge.architecture_of_device(int(device[1], 16))) if device else None
    return {"wanted_branch": RECENT_BRANCH, "last_branch": last or RECENT_BRANCH} if device else {}


def last_words(before: str) -> str:
    """The driver's last line before the failure."""
    said = [line for line in before.splitlines() if "NVRM" in line or "nvidia" in line]
    return said[-1] if said else ""


def without_empty(evidence: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in evidence.items() if value}


def summary(facts: Facts) -> str:
    try:
        count = len(facts.nvml.reachable)
        return f"{count} GPU{'s' * (count != 1)} initialised"
    except Unavailable:
        return "no failed initialisation in the log"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=tuple(PROBLEMS.values()),
    needs=("kernel-module",),
    tags=("hardware",),
)
