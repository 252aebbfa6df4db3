"""The kernel module is of the flavour, open or proprietary, that the GPU's generation needs.

What it means
NVIDIA's driver has two kernel modules. The open one needs a processor (GSP) that GPUs have from Turing on; Blackwell and what
comes after it are supported by the open one only. With the wrong flavour nvidia-smi says "No devices were found".

How it is judged
The generation of every GPU by its PCI device id, against the word "Open" in /proc/driver/nvidia/version. Where the module
gave up and is not loaded, only its own words in the kernel log count.

Known exceptions
A GPU that NVML lists works. Generations from Turing to Hopper work with both. A GPU that vfio-pci or nouveau holds is not the
module's.

References
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862
https://github.com/zzzhouuu/truenas-nvidia-drivers/issues/20
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.pci import PciFunction
from gpudoctor.knowledge import architecture_of_device, last_branch
from gpudoctor.model import Action, Check, Confidence, Finding, Problem, Skip, Unavailable, fix_on, for_each

NEEDS_OPEN = Problem(
    id="blackwell-needs-open-module",
    title="The GPU needs the open kernel module, and the proprietary one is installed",
    why="Blackwell and newer GPUs are supported by the open (MIT/GPL) module only. Both come "
    "with the driver; the package decides.",
    action=Action.INSTALL,
    fixes=fix_on(
        "Install the open flavour of the driver, then reboot",
        verify="nvidia-smi",
        debian="sudo apt purge 'nvidia-dkms-*'; "
        "(sudo apt install nvidia-driver-<wanted_branch>-open || sudo apt install nvidia-open) && sudo reboot",
        rhel="sudo dnf install --allowerasing nvidia-open && sudo reboot",
        suse="sudo zypper install nvidia-open-driver-G06-signed-kmp && sudo reboot",
        arch="sudo pacman -S nvidia-open-dkms && sudo reboot",
        other="sudo sh NVIDIA-Linux-*.run -M=open && sudo reboot",
    ),
    references=(
        "https://github.com/oddmario/NVIDIA-Ubuntu-Driver-Guide/issues/10",
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862",
    ),
)

NEEDS_PROPRIETARY = Problem(
    id="open-module-on-pre-turing",
    title="The GPU is too old for the open kernel module",
    why="The open module needs the GSP, a processor that GPUs have from Turing on. Older ones need the proprietary module, of a "
    "branch that still supports them.",
    action=Action.INSTALL,
    fixes=fix_on(
        "Install the proprietary flavour of the last branch that supports it, then reboot",
        verify="nvidia-smi",
        debian="sudo apt purge 'nvidia-*-open'; "
        "(sudo apt install nvidia-driver-<last_branch> || sudo apt install cuda-drivers-<last_branch>) && sudo reboot",
        rhel="(sudo dnf module install nvidia-driver:<last_branch>-dkms || sudo dnf install akmod-nvidia-<last_branch>xx) && "
        "sudo reboot",
        suse="sudo zypper install nvidia-driver-G06-kmp-default && sudo reboot",
        arch="yay -S nvidia-<last_branch>xx-dkms && sudo reboot",
        other="sudo sh NVIDIA-Linux-*-<last_branch>.*.run -M=proprietary && sudo reboot",
    ),
    references=("https://github.com/zzzhouuu/truenas-nvidia-drivers/issues/20",),
)

PRE_TURING = ("Fermi", "Kepler", "Maxwell", "Pascal", "Volta")
EITHER = ("Turing", "Ampere", "Ada", "Hopper")
RECENT_BRANCH = 580  # of long-term support, and knows every Blackwell
SAYS_OPEN = r"The NVIDIA GPU (\S+) \(PCI ID: 10de:\w+\) installed in this system requires use of the NVIDIA open kernel modules"
SAYS_PROPRIETARY = r"The NVIDIA GPU (\S+) \(PCI ID: 10de:\w+\) installed in this system is not supported by open nvidia\.ko"


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the kernel module lives in Windows")
    words = log(facts)
    if facts.driver.module_version is None and not words:
        raise Skip("no NVIDIA kernel module is loaded here")
    kinds: dict[int, list[PciFunction]] = {}
    for gpu in facts.pci.gpus:
        if gpu.driver in (None, "nvidia"):
            kinds.setdefault(gpu.device_id, []).append(gpu)
    if kinds:
        yield from for_each(kinds.values(), lambda gpus: judge_kind(facts, gpus, words))


def log(facts: Facts) -> dict[str, Problem]:
    """Address -> what the driver itself says of a GPU; empty where the log is closed to us."""
    try:
        text = facts.kernel_log.nvrm
    except Unavailable:
        return {}
    patterns = ((SAYS_OPEN, NEEDS_OPEN), (SAYS_PROPRIETARY, NEEDS_PROPRIETARY))
    return {address.lower(): problem for pattern, problem in patterns for address in re.findall(pattern, text)}


def judge_kind(facts: Facts, gpus: list[PciFunction], words: dict[str, Problem]) -> Iterator[Finding]:
    """All GPUs of one model, which have one fate."""
    if any(facts.nvml.reaches(gpu.address) for gpu in gpus):
        return
    generation = architecture_of_device(gpus[0].device_id)
    said = next((words[gpu.address] for gpu in gpus if gpu.address in words), None)
    if said:
        yield found(facts, said, gpus, Confidence.CONFIRMED)
    elif facts.driver.module_version is None or generation in EITHER:
        return
    elif generation is None:
        raise Unavailable(f"the generation of {gpus[0].address} (10de:{gpus[0].device_id:04x}) is not known here")
    elif is_open(facts) == (generation in PRE_TURING) and not is_dropped(facts, generation):
        yield found(facts, NEEDS_PROPRIETARY if is_open(facts) else NEEDS_OPEN, gpus, Confidence.LIKELY)


def is_dropped(facts: Facts, generation: str) -> bool:
    """A release that no longer supports a generation ignores its GPUs in either flavour."""
    last = last_branch(generation)
    return last is not None and (facts.driver.branch or 0) > last


def found(facts: Facts, problem: Problem, gpus: list[PciFunction], confidence: Confidence) -> Finding:
    device = f"10de:{gpus[0].device_id:04x}"
    generation = architecture_of_device(gpus[0].device_id)
    addresses = [gpu.address for gpu in gpus]
    evidence = {
        "gpus": addresses,
        "device": device,
        "generation": generation,
        "wanted_branch": max(facts.driver.branch or RECENT_BRANCH, RECENT_BRANCH),
        "last_branch": last_branch(generation) or RECENT_BRANCH,
    }
    flavour = "proprietary" if problem is NEEDS_OPEN else "open"
    message = f"{', '.join(addresses)} ({device}, {generation or 'unknown'} generation): the module is the {flavour} one"
    return problem.found(message, evidence, confidence=confidence)


def is_open(facts: Facts) -> bool:
    if facts.driver.module_is_open is None:
        raise Unavailable("/proc/driver/nvidia/version does not tell which module is loaded")
    return facts.driver.module_is_open


def summary(facts: Facts) -> str:
    return f"{'open' if is_open(facts) else 'proprietary'} module"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="driver",
    problems=(NEEDS_OPEN, NEEDS_PROPRIETARY),
    needs=("gpu-on-bus",),
)
