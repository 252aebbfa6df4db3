"""The installed driver supports every GPU here, in both its branch and its flavour (open or proprietary).

What it means
A driver branch supports the GPUs of its time: not those released later, and no longer those that are too old. NVIDIA's driver
has two kernel modules. The open one requires a processor (GSP) that GPUs have since Turing; Blackwell and later GPUs are
supported by the open one only. If the driver does not support a GPU, nvidia-smi prints "No devices were found".

How it is judged
The check reads what the installed driver wrote about a GPU in the kernel log. If it wrote nothing, the check compares the
generation of every GPU (from its PCI device id) with the branch and with the word "Open" in /proc/driver/nvidia/version.

Known exceptions
A GPU that NVML lists works. Generations from Turing to Hopper work with both modules. A GPU bound to vfio-pci or nouveau does
not belong to the module. A host GPU that a container did not get is not judged in the container.

References
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862
https://github.com/zzzhouuu/truenas-nvidia-drivers/issues/20
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.facts.pci import PciFunction
from gpudoctor.fixes.common import install_on
from gpudoctor.judging.driver.next_boot import on_disk
from gpudoctor.knowledge import last_branch
from gpudoctor.knowledge.cuda import cuda_of_branch, table
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Unavailable, for_each

OPEN_DRIVER = install_on(
    "Install a newer driver with the open module, then reboot",
    recipe="driver <wanted_branch>",
    verify="nvidia-smi",
    debian="(sudo apt install nvidia-driver-<wanted_branch>-open || sudo apt install nvidia-open)",
    rhel="sudo dnf install --allowerasing nvidia-open",
    suse="sudo zypper install nvidia-open-driver-G06-signed-kmp",
    arch="sudo pacman -Syu nvidia-open-dkms",
    other="sudo sh NVIDIA-Linux-*.run -M=open",
    reboot=True,
)
VGPU_DRIVER = Fix(
    "If this virtual machine has a vGPU: install NVIDIA's vGPU guest driver (GRID) of the host's release instead",
    "sudo sh NVIDIA-Linux-*-grid.run",
    verify="nvidia-smi",
    reboot=True,
)
NOT_SUPPORTED = Problem(
    id="gpu-not-supported-by-driver",
    title="The installed driver does not support this GPU",
    why="The module examined the GPU and rejected it. The GPU is newer than the driver, or it is a vGPU in a virtual machine, "
    "which requires the guest driver.",
    action=Action.INSTALL,
    fixes=(*OPEN_DRIVER, VGPU_DRIVER),
)

ON_NIXOS = (
    "echo '{ config, lib, ... }: { hardware.nvidia.package = lib.mkForce config.boot.kernelPackages.nvidiaPackages."
    "legacy_<last_branch>; hardware.nvidia.open = lib.mkForce false; }' | sudo tee /etc/nixos/nvidia-driver.nix && "
    "sudo sed -i.bak 's|\\./hardware-configuration\\.nix|& ./nvidia-driver.nix|' /etc/nixos/configuration.nix && "
    "sudo nixos-rebuild boot"
)
NO_COMMON_BRANCH = Fix("Remove this GPU or pass it to a virtual machine: no branch supports all GPUs of this machine")
DROPPED = Problem(
    id="gpu-dropped-by-driver-branch",
    title="This driver branch no longer supports the GPU",
    why="An older branch was the last to support this GPU generation. Newer drivers ignore the device.",
    action=Action.INSTALL,
    fixes=install_on(
        "Install the last branch that supports it",
        recipe="driver <last_branch> last",
        verify="nvidia-smi",
        debian="sudo apt install nvidia-driver-<last_branch>",
        rhel="sudo dnf install akmod-nvidia-<last_branch>xx",
        arch="yay -S nvidia-<last_branch>xx-dkms",
        suse="sudo zypper install nvidia-driver-G06-kmp-default",
        nixos=ON_NIXOS,
        other="sudo sh NVIDIA-Linux-*-<last_branch>.*.run",
        reboot=True,
    ),
    references=("https://github.com/NixOS/nixos-hardware/issues/1828",),
)

NEEDS_OPEN = Problem(
    id="blackwell-needs-open-module",
    title="The GPU needs the open kernel module, not the proprietary one",
    why="Blackwell and newer GPUs are supported by the open (MIT/GPL) module only. Both modules come with the driver; the "
    "package decides which one is installed.",
    action=Action.INSTALL,
    fixes=OPEN_DRIVER,
    references=(
        "https://github.com/oddmario/NVIDIA-Ubuntu-Driver-Guide/issues/10",
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862",
    ),
)

NEEDS_PROPRIETARY = Problem(
    id="open-module-on-pre-turing",
    title="The GPU is too old for the open kernel module",
    why="The open module requires the GSP, a processor that GPUs have since Turing. Older GPUs need the proprietary module of a "
    "branch that still supports them.",
    action=Action.INSTALL,
    fixes=install_on(
        "Install the proprietary flavour of the last branch that supports it, then reboot",
        recipe="driver <last_branch> last",
        verify="nvidia-smi",
        debian="(sudo apt install nvidia-driver-<last_branch> || sudo apt install cuda-drivers-<last_branch>)",
        rhel="(sudo dnf module install nvidia-driver:<last_branch>-dkms || sudo dnf install akmod-nvidia-<last_branch>xx)",
        suse="sudo zypper install nvidia-driver-G06-kmp-default",
        arch="yay -S nvidia-<last_branch>xx-dkms",
        nixos=ON_NIXOS,
        other="sudo sh NVIDIA-Linux-*-<last_branch>.*.run -M=proprietary",
        reboot=True,
    ),
    references=("https://github.com/zzzhouuu/truenas-nvidia-drivers/issues/20",),
)

PRE_TURING = ("Fermi", "Kepler", "Maxwell", "Pascal", "Volta")
EITHER = ("Turing", "Ampere", "Ada", "Hopper")
RECENT_BRANCH = 580  # long-term support; supports every Blackwell GPU
THIS_GPU = r"The NVIDIA GPU (\S+) \(PCI ID: 10de:\w+\) installed in this system "
SAYS_OPEN = THIS_GPU + "requires use of the NVIDIA open kernel modules"
SAYS_PROPRIETARY = THIS_GPU + r"is not supported by open nvidia\.ko"
SAYS_UNSUPPORTED = THIS_GPU + r"is not supported by the NVIDIA {version} driver release"
SAYS_DROPPED = re.compile(
    r"GPU\ installed\ in\ this\ system\ is\ supported\ through\ the\ NVIDIA\ (\d+)\.xx\ Legacy\ drivers", re.VERBOSE
)

Kind = list[PciFunction]  # all GPUs of one model, which are judged together


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the kernel module is in Windows")
    kinds: dict[str, Kind] = {}
    for gpu in facts.pci.gpus:
        if driver_of(gpu) in (None, "nvidia"):
            kinds.setdefault(gpu.model, []).append(gpu)
    if kinds and not (facts.container.engine and facts.nvml.reaches_any):
        words = known(lambda: facts.kernel_log.nvrm, "")
        yield from for_each(kinds.values(), lambda gpus: judge_kind(facts, gpus, words))
    if facts.driver.module_version is None:
        raise Skip("no NVIDIA kernel module is loaded")


def driver_of(gpu: PciFunction) -> str | None:
    """A text may not show it."""
    return known(lambda: gpu.driver)


def judge_kind(facts: Facts, gpus: Kind, words: str) -> Iterator[Finding]:
    if any(facts.nvml.reaches(gpu.address) for gpu in gpus):
        return
    generation = gpus[0].generation
    last = abandoned(facts, gpus, words)
    said = None if last else said_by_driver(facts, gpus, words)
    if last:
        yield ignored(facts, gpus, last, words)
    elif said is NOT_SUPPORTED:
        yield unsupported(facts, gpus)
    elif said:
        yield wrong_flavour(facts, said, gpus, Confidence.CONFIRMED)
    elif known(lambda: facts.driver.module_version, on_disk(facts)) is None or generation in EITHER:
        return
    elif generation is None:
        raise Unavailable(f"the generation of {gpus[0].address} ({gpus[0].model}) is unknown")
    elif is_open(facts) == (generation in PRE_TURING) and not is_outgrown(facts, gpus[0]):
        yield wrong_flavour(facts, NEEDS_PROPRIETARY if is_open(facts) else NEEDS_OPEN, gpus, Confidence.LIKELY)


def abandoned(facts: Facts, gpus: Kind, words: str) -> int | None:
    """The last branch for GPUs that the driver ignores: from its log message, which names no address, or by the generation."""
    if any(map(driver_of, gpus)):
        return None
    generation = gpus[0].generation
    last = last_branch(generation)
    said = {int(branch) for branch in SAYS_DROPPED.findall(words)}
    if words:
        return last if last in said else next(iter(said), None) if generation is None else None
    whole = facts.nvml.reaches_any or all(is_outgrown(facts, gpu) for gpu in facts.pci.gpus)
    return last if whole and is_outgrown(facts, gpus[0]) else None


def is_outgrown(facts: Facts, gpu: PciFunction) -> bool:
    """Whether the driver is newer than the GPU's last branch: then both flavours ignore the GPU."""
    last = last_branch(gpu.generation)
    return last is not None and (facts.driver.branch or 0) > last


def said_by_driver(facts: Facts, gpus: Kind, words: str) -> Problem | None:
    """What the currently installed driver reports about these GPUs; messages of earlier drivers may differ."""
    version = known(lambda: facts.driver.module_version) or on_disk(facts) or r"[\d.]+"
    patterns = (
        (SAYS_OPEN, NEEDS_OPEN),
        (SAYS_PROPRIETARY, NEEDS_PROPRIETARY),
        (SAYS_UNSUPPORTED.format(version=version), NOT_SUPPORTED),
    )
    addresses = {gpu.address for gpu in gpus}
    said = (problem for pattern, problem in patterns for address in re.findall(pattern, words) if address.lower() in addresses)
    return next(said, None)


def ignored(facts: Facts, gpus: Kind, last: int, words: str) -> Finding:
    kinds = {gpu.generation for gpu in facts.pci.gpus} - {None}
    # A branch that still supports this GPU may be too old for another GPU here.
    problem = DROPPED if all(knows(last, kind) for kind in kinds) else replace(DROPPED, fixes=(NO_COMMON_BRANCH,))
    return problem.found(
        f"the installed driver ignores {named(gpus)}; R{last} is the last branch that supports it",
        {"gpus": [gpu.address for gpu in gpus], "last_branch": last, "installed": on_disk(facts)},
        confidence=Confidence.CONFIRMED if words else Confidence.LIKELY,
        partial=facts.nvml.reaches_any,
    )


def unsupported(facts: Facts, gpus: Kind) -> Finding:
    generation = gpus[0].generation
    # If the branch supports this generation, but not this device in a virtual machine, the device is a vGPU.
    is_virtual = facts.system.hypervisor is not None and knows(facts.driver.branch, generation)
    fixes = (VGPU_DRIVER,) if is_virtual else OPEN_DRIVER
    release = known(lambda: facts.driver.module_version) or on_disk(facts) or facts.driver.branch
    words = f"{named(gpus)}: driver {release} does not support it"
    words += f" in this virtual machine, although it supports {generation} GPUs: likely a vGPU" if is_virtual else ""
    return replace(NOT_SUPPORTED, fixes=fixes).found(
        words,
        evidence(facts, gpus),
        confidence=Confidence.LIKELY if is_virtual else Confidence.CONFIRMED,
        partial=facts.nvml.reaches_any,
    )


def knows(branch: int | None, generation: str | None) -> bool:
    """Whether a branch is new enough for GPUs of a generation."""
    first = min((row.first_cuda for row in table().architectures if row.name == generation), default=None)
    newest = cuda_of_branch(branch or 0)
    return first is not None and newest is not None and first <= newest


def wrong_flavour(facts: Facts, problem: Problem, gpus: Kind, confidence: Confidence) -> Finding:
    flavour = "proprietary" if problem is NEEDS_OPEN else "open"
    message = f"{named(gpus)}: the module is the {flavour} one"
    return problem.found(message, evidence(facts, gpus), confidence=confidence, partial=facts.nvml.reaches_any)


def evidence(facts: Facts, gpus: Kind) -> dict[str, object]:
    generation, branch = gpus[0].generation, facts.driver.branch or RECENT_BRANCH
    return {
        "gpus": [gpu.address for gpu in gpus],
        "device": gpus[0].model,
        "generation": generation,
        "wanted_branch": max(branch, RECENT_BRANCH),
        "last_branch": last_branch(generation) or RECENT_BRANCH,
    }


def named(gpus: Kind) -> str:
    generation = gpus[0].generation or "unknown"
    return f"{', '.join(gpu.address for gpu in gpus)} ({gpus[0].model}, {generation} generation)"


def is_open(facts: Facts) -> bool:
    """Whether the loaded module is the open one; that on disk, if a text does not show which is loaded."""
    licence = known(lambda: facts.driver.modinfo.get("license"))
    on_disk = {"Dual MIT/GPL": True, "NVIDIA": False}.get(licence or "")
    flavour = known(lambda: facts.driver.module_is_open, on_disk)
    if flavour is None:
        raise Unavailable("/proc/driver/nvidia/version does not show which module is loaded")
    return flavour


def summary(facts: Facts) -> str:
    return f"{'open' if is_open(facts) else 'proprietary'} module"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NOT_SUPPORTED, DROPPED, NEEDS_OPEN, NEEDS_PROPRIETARY),
    needs=("gpu-on-bus",),
)
