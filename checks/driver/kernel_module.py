"""The NVIDIA kernel module is loaded.

What it means
Without the module no program can reach the GPU: nvidia-smi "couldn't communicate with the NVIDIA driver" and CUDA sees no
device.

How it is judged
/proc/driver/nvidia/version exists. Where it does not, the causes are ruled out in this order: no driver is installed,
nouveau holds the GPU, the module is blacklisted, Secure Boot rejects the module, it was built for another kernel, its build
failed for the running kernel, it was never built for that kernel. A driver that does not support the GPU is another check's
matter.

Known exceptions
Under WSL2 the module lives in Windows. In a container /proc shows the host's module; why it is missing, only the host knows.

References
https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.driver.driver_packages import FINISH, has_builder, unfinished
from gpudoctor.judging.driver.refused_module import BLACKLISTED, OF_ANOTHER_KERNEL, blacklisted, of_another_kernel
from gpudoctor.knowledge import architecture_of_device, last_branch
from gpudoctor.knowledge.cuda import table
from gpudoctor.model import Action, Cause, Check, Confidence, Finding, Fix, Problem, Skip, first_cause, fix_on

GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"

INSTALL_ON_DEBIAN = "sudo apt update && sudo apt install linux-headers-$(uname -r) nvidia-driver && sudo reboot"
NOT_INSTALLED = Problem(
    id="no-driver-found",
    title="No NVIDIA driver is installed",
    why="The GPU is there, but neither a kernel module nor driver libraries are. A CUDA toolkit or a pip wheel brings no driver.",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Install the driver, then reboot",
            verify="nvidia-smi",
            recipe="driver",
            debian=INSTALL_ON_DEBIAN,
            rhel="sudo dnf install nvidia-open && sudo reboot",
            suse="sudo zypper install nvidia-open-driver-G06-signed-kmp && sudo reboot",
            arch="sudo pacman -S nvidia-open-dkms linux-headers && sudo reboot",
            other="sudo sh NVIDIA-Linux-*.run && sudo reboot",
        ),
    ),
    references=(GUIDE,),
)

KEPT_OUT = "blacklist nouveau\\nblacklist nova_core\\noptions nouveau modeset=0\\n"
BLACKLIST = f"printf '{KEPT_OUT}' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf && "
DRACUT, MKINITCPIO = "sudo dracut --force && ", "sudo mkinitcpio -P && "
INITRAMFS = {"debian": "sudo update-initramfs -u && ", "rhel": DRACUT, "suse": DRACUT, "arch": MKINITCPIO, "other": ""}
KEEP_OUT = "Keep it from loading, rebuild the initramfs, then reboot"
NOUVEAU = Problem(
    id="nouveau-loaded",
    title="The kernel's own driver, nouveau or nova, holds the GPU",
    why="It was loaded first and cannot share a GPU with NVIDIA's module; it has no CUDA.",
    action=Action.REBOOT,
    fixes=tuple(
        Fix(KEEP_OUT, f"{BLACKLIST}{words}sudo reboot", "disruptive", (), "nvidia-smi", (on,)) for on, words in INITRAMFS.items()
    ),
    references=(GUIDE,),
)

ACCEPT = "Have the module accepted: take one that is signed, or enrol the key that signed it"
DKMS_KEY = "sudo mokutil --import /var/lib/dkms/mok.pub"
SECURE_BOOT = Problem(
    id="secure-boot-module-rejected",
    title="Secure Boot rejects the kernel module",
    why="The firmware loads only modules signed with an enrolled key, and the key that signed this one was never enrolled. "
    "The commands ask for a password; at the next boot choose 'Enroll MOK' on the blue screen and give it again.",
    action=Action.REBOOT,
    fixes=tuple(
        Fix(ACCEPT, f"{enrol} && sudo reboot", verify="nvidia-smi", on=on, recipe="sign")
        for enrol, on in (
            (f"(sudo update-secureboot-policy --enroll-key || {DKMS_KEY})", ("debian",)),
            ("sudo kmodgenca -a; sudo mokutil --import /etc/pki/akmods/certs/public_key.der", ("rhel",)),
            (DKMS_KEY, ("arch", "suse", "other")),
        )
    ),
    references=("https://unix.stackexchange.com/questions/535434/what-exactly-is-mok-in-linux-for",),
)

OLDER_KERNEL = Fix("Boot the previous kernel from the boot menu; the compiler's words are in the log", "less <log>")
COMPILER = fix_on(
    "Install the compiler that built the kernel, then build the module",
    verify="dkms status && nvidia-smi",
    debian="sudo apt install gcc-<gcc> && sudo dkms autoinstall && sudo modprobe nvidia",
    rhel="sudo dnf install gcc && sudo dkms autoinstall && sudo modprobe nvidia",
    suse="sudo zypper install gcc<gcc> && sudo dkms autoinstall && sudo modprobe nvidia",
    arch="sudo pacman -Syu gcc && sudo dkms autoinstall && sudo modprobe nvidia",
)
NEWER = fix_on(
    "Install a newer driver, which knows this kernel",
    recipe="driver <newer>",
    verify="dkms status && nvidia-smi",
    debian="(sudo apt install nvidia-driver-<newer> || sudo apt install nvidia-driver) && sudo reboot",
    rhel="sudo dnf upgrade '*nvidia*' && sudo reboot",
    arch="sudo pacman -Syu && sudo reboot",
)
BUILD_FAILED = Problem(
    id="dkms-build-failed-new-kernel",
    title="The module could not be compiled for the running kernel",
    why="The compiler failed: this driver does not know this kernel, or the compiler that built the kernel is missing.",
    action=Action.INSTALL,
    fixes=(*NEWER, OLDER_KERNEL),
    references=("https://github.com/linux-surface/linux-surface/issues/573",),
)

BEFORE_TURING = ("Kepler", "Maxwell", "Pascal", "Volta")
OTHER_KERNEL = "/boot/vmlinuz-<other_kernel>"
PRECOMPILED = (
    Fix("Update the driver and its ready-made module, then reboot", "sudo dnf upgrade 'kmod-nvidia*' 'nvidia*' && sudo reboot"),
    Fix("If there is none yet: boot the kernel that it is for", f"sudo grubby --set-default={OTHER_KERNEL} && sudo reboot"),
)
NOT_BUILT = Problem(
    id="module-not-built-after-kernel-update",
    title="The kernel was updated, and the NVIDIA module was not built for it",
    why="The module is compiled for each kernel. The headers of the running kernel (or DKMS) were missing when it was updated.",
    action=Action.INSTALL,
    fixes=fix_on(
        "Install the module for the running kernel, or its headers to build it",
        recipe="module",
        verify="nvidia-smi",
        debian="sudo apt install dkms linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia",
        rhel="sudo dnf install kernel-devel-$(uname -r); (sudo akmods --force || sudo dkms autoinstall) && sudo modprobe nvidia",
        arch="sudo pacman -Syu linux-headers nvidia-open-dkms && sudo reboot",
        suse="sudo zypper install kernel-default-devel && sudo dkms autoinstall && sudo modprobe nvidia",
        other="sudo dkms autoinstall && sudo modprobe nvidia",
    ),
    references=("https://github.com/GoogleCloudPlatform/compute-gpu-installation/issues/25",),
)

LOAD = "sudo modprobe nvidia; sudo dmesg | grep -iE 'nvidia|NVRM' | tail -n 20"
NOT_LOADED = Problem(
    id="kernel-module-not-loaded",
    title="The NVIDIA kernel module is not loaded",
    why="A driver is installed, but its module is not in the kernel; why is not visible from here.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("Load it on the host; the log then says what stands in its way", LOAD, verify="nvidia-smi"),),
)

REJECTED = "|".join(
    (
        r"Loading of (unsigned )?module.* rejected",
        r"unavailable key is rejected",
        r"PKCS#7 signature not signed",
        r"unsigned module loading is restricted",
        r"Key was rejected",
    )
)


def not_installed(facts: Facts) -> Finding | None:
    if facts.driver.installed_modules or facts.driver.library_versions:
        return None
    return NOT_INSTALLED.found(f"no nvidia module and no driver library for {_gpus(facts)}")


def nouveau(facts: Facts) -> Finding | None:
    held = {gpu.address: gpu.driver for gpu in facts.pci.gpus if gpu.driver in ("nouveau", "NovaCore", "nova_core")}
    if not held or came_in_its_place(facts):
        return None
    return NOUVEAU.found(f"{next(iter(held.values()))} is bound to {', '.join(held)}", {"gpus": list(held)})


def came_in_its_place(facts: Facts) -> bool:
    """Whether NVIDIA's module could not be loaded, so that nouveau was: distributions have a service that does so."""
    for look in (secure_boot, build_failed, not_built):
        with contextlib.suppress(Skip):
            if facts.driver.installed_modules and look(facts):
                return True
    return False


def secure_boot(facts: Facts) -> Finding | None:
    if not facts.system.secure_boot or not facts.driver.module_for_running_kernel:
        return None
    lines = facts.kernel_log.matching(REJECTED)
    if not lines:
        return None
    evidence = {"log": lines[-1].text, "signer": facts.driver.modinfo.get("signer", "none")}
    return SECURE_BOOT.found("Secure Boot is on and the kernel refused the module", evidence)


def build_failed(facts: Facts) -> Finding | None:
    if facts.driver.module_for_running_kernel or not facts.driver.kernel_headers:
        return None
    for path, text in facts.driver.dkms_make_logs.items():
        errors = re.findall(r"^.*(?:\berror:|\*\*\* ).*$", text, re.M)
        built_for = re.search(r"for kernel (\S+)", text)
        if errors and (built_for is None or built_for[1] == facts.system.kernel):
            error = errors[0].strip()
            evidence = {"log": path, "error": error, "gcc": kernel_compiler(text), "newer": newer_driver(facts)}
            problem = replace(BUILD_FAILED, fixes=(*COMPILER, OLDER_KERNEL)) if evidence["gcc"] else BUILD_FAILED
            return problem.found(f"the build for {facts.system.kernel} failed: {error}", evidence)
    return None


def kernel_compiler(log: str) -> str | None:
    """The major version of the gcc that built the kernel, where the build failed for want of it."""
    missing = re.search(r"unrecognized command[- ]line option|gcc-\d+: (?:command )?not found", log)
    built_by = re.search(r"(?:built by: \S*gcc(?:-\d+)? \(.*\) |gcc-)(\d+)", log)
    return built_by[1] if missing and built_by else None


def newer_driver(facts: Facts) -> str:
    """A branch for production that is newer than the installed one, else the newest; GPUs before Turing have no open module."""
    kinds = {architecture_of_device(gpu.device_id) for gpu in facts.pci.gpus}
    last = min(filter(None, map(last_branch, kinds)), default=max(row.number for row in table().branches))
    kept = {row.number for row in table().branches if row.kind in ("production", "long-term support") and row.number <= last}
    number = min((number for number in kept if number > (facts.driver.branch or 0)), default=max(kept, default=last))
    return f"{number}-open" if kinds.isdisjoint(BEFORE_TURING) else str(number)


def not_built(facts: Facts) -> Finding | None:
    if facts.driver.module_for_running_kernel or is_found_by_modprobe(facts):
        return None
    others = sorted({module.kernel for module in facts.driver.installed_modules})
    precompiled = facts.system.family == "rhel" and not has_builder(facts)
    fixes = (PRECOMPILED if others else PRECOMPILED[:1]) if precompiled else NOT_BUILT.fixes
    there = f"one for {', '.join(others)}" if others else "none"
    there += f"; {waiting[0]}" if (waiting := unfinished(facts)) else ""
    fixes = (FINISH, *fixes) if waiting else fixes
    return replace(NOT_BUILT, fixes=fixes).found(
        f"no module for the running kernel {facts.system.kernel}; there is {there}",
        {"built_for": others, "other_kernel": others[-1] if others else None, "headers": facts.driver.kernel_headers},
    )


def is_found_by_modprobe(facts: Facts) -> bool:
    """Some systems (NixOS) keep modules elsewhere; without modinfo only the usual places count."""
    return known(lambda: bool(facts.driver.modinfo), False)


CAUSES = (
    Cause(NOT_INSTALLED, not_installed),
    Cause(NOUVEAU, nouveau),
    Cause(BLACKLISTED, blacklisted),
    Cause(SECURE_BOOT, secure_boot),
    Cause(OF_ANOTHER_KERNEL, of_another_kernel),
    Cause(BUILD_FAILED, build_failed),
    Cause(NOT_BUILT, not_built),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the kernel module lives in Windows")
    if facts.driver.module_version is not None:
        return
    if not facts.pci.gpus:
        raise Skip("there is no NVIDIA GPU on the bus")
    if facts.container.engine:
        yield from in_container(facts)
    else:
        yield from first_cause(CAUSES, facts, NOT_LOADED.found("the nvidia module is not in the running kernel"))


def in_container(facts: Facts) -> Iterator[Finding]:
    """The files of the host, which would tell why, are not in here; a container without devices is judged as such."""
    if not facts.devices.gpu_nodes:
        raise Skip("no nvidia module is in the kernel that this container runs on")
    yield NOT_LOADED.found("it is not in the host's kernel, but its nodes are in this container", confidence=Confidence.UNKNOWN)


def summary(facts: Facts) -> str:
    return f"nvidia {facts.driver.module_version} is loaded"


def _gpus(facts: Facts) -> str:
    return ", ".join(gpu.address for gpu in facts.pci.gpus)


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(*(cause.problem for cause in CAUSES), NOT_LOADED),
    needs=("gpu-on-bus", "module-flavour"),
)
