"""The NVIDIA kernel module is loaded.

What it means
Without the module no program can use the GPU: nvidia-smi "couldn't communicate with the NVIDIA driver" and CUDA finds no device.

How it is judged
The module is loaded if /proc/driver/nvidia/version exists. If it does not, the causes are ruled out in this order: no driver is
installed, nouveau holds the GPU, the module is blacklisted, Secure Boot rejects the module, an upgrade removed the modules of the
running kernel, the module was built for another kernel, its build failed for the running kernel, it was never built for that
kernel. Another check reports a driver that does not support the GPU.

Known exceptions
Under WSL2 the module is in Windows. In a container, /proc shows the host's module; only the host can show why it is missing.

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
from gpudoctor.fixes.common import install_on
from gpudoctor.judging.driver.driver_packages import FINISH, has_builder, unfinished
from gpudoctor.judging.driver.failed_build import BUILD_FAILED, build_failed
from gpudoctor.judging.driver.graphics_modes import SWITCHED_OFF
from gpudoctor.judging.driver.refused_module import BLACKLISTED, OF_ANOTHER_KERNEL, blacklisted, of_another_kernel
from gpudoctor.judging.driver.replaced_kernel import GONE, replaced
from gpudoctor.model import Action, Cause, Check, Confidence, Finding, Fix, Problem, Skip, first_cause

GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"

INSTALL_ON_DEBIAN = "sudo apt update && sudo apt install linux-headers-$(uname -r) nvidia-driver"
NOT_INSTALLED = Problem(
    id="no-driver-found",
    title="No NVIDIA driver is installed",
    why="A GPU is present, but neither a kernel module nor driver libraries are installed. A CUDA toolkit or a pip wheel does "
    "not include the driver.",
    action=Action.INSTALL,
    fixes=(
        *install_on(
            "Install the driver, then reboot",
            verify="nvidia-smi",
            recipe="driver",
            debian=INSTALL_ON_DEBIAN,
            rhel="sudo dnf install nvidia-open",
            suse="sudo zypper install nvidia-open-driver-G06-signed-kmp",
            arch="sudo pacman -S nvidia-open-dkms linux-headers",
            other="sudo sh NVIDIA-Linux-*.run",
            reboot=True,
        ),
    ),
    references=(GUIDE,),
)

KEPT_OUT = "blacklist nouveau\\nblacklist nova_core\\noptions nouveau modeset=0\\n"
BLACKLIST = f"printf '{KEPT_OUT}' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf"
UNBLACKLIST = "sudo rm /etc/modprobe.d/blacklist-nouveau.conf"
DRACUT, MKINITCPIO = " && sudo dracut --force", " && sudo mkinitcpio -P"
INITRAMFS = {"debian": " && sudo update-initramfs -u", "rhel": DRACUT, "suse": DRACUT, "arch": MKINITCPIO, "other": ""}
KEEP_OUT = "Blacklist it, rebuild the initramfs, then reboot"
NOUVEAU = Problem(
    id="nouveau-loaded",
    title="The kernel's own driver, nouveau or nova, holds the GPU",
    why="It was loaded first and cannot share a GPU with NVIDIA's module. It does not support CUDA.",
    action=Action.REBOOT,
    fixes=tuple(
        Fix(KEEP_OUT, BLACKLIST + words, verify="nvidia-smi", on=(on,), kind="set", reboot=True, undo=UNBLACKLIST + words)
        for on, words in INITRAMFS.items()
    ),
    references=(GUIDE,),
)

ACCEPT = "Install a signed module, or enrol the key that signed this one"
DKMS_KEY = "sudo mokutil --import /var/lib/dkms/mok.pub"
SECURE_BOOT = Problem(
    id="secure-boot-module-rejected",
    title="Secure Boot rejects the kernel module",
    why="The firmware loads only modules signed with an enrolled key, and the key that signed this one was never enrolled. "
    "The command asks for a password; at the next boot choose 'Enroll MOK' on the blue screen and enter it again.",
    action=Action.REBOOT,
    fixes=tuple(
        Fix(ACCEPT, enrol, verify="nvidia-smi", on=on, recipe="sign", kind="set", reboot=True)
        for enrol, on in (
            (f"(sudo update-secureboot-policy --enroll-key || {DKMS_KEY})", ("debian",)),
            ("sudo kmodgenca -a; sudo mokutil --import /etc/pki/akmods/certs/public_key.der", ("rhel",)),
            (DKMS_KEY, ("arch", "suse", "other")),
        )
    ),
    references=("https://unix.stackexchange.com/questions/535434/what-exactly-is-mok-in-linux-for",),
)

OTHER_KERNEL = "/boot/vmlinuz-<other_kernel>"
PRECOMPILED = (
    Fix(
        "Update the driver and its precompiled module, then reboot",
        "sudo dnf upgrade 'kmod-nvidia*' 'nvidia*'",
        kind="install",
        reboot=True,
    ),
    Fix(
        "If no such module exists yet: boot the kernel that it was built for",
        f"sudo grubby --set-default={OTHER_KERNEL}",
        kind="set",
        reboot=True,
    ),
)
MODPROBE = "sudo modprobe nvidia"
BUILD = "Install the module for the running kernel, or the kernel headers to build it"
NOT_BUILT = Problem(
    id="module-not-built-after-kernel-update",
    title="The kernel was updated, but the NVIDIA module was not built for it",
    why="The module must be compiled for each kernel. The kernel headers or DKMS were missing when the kernel was updated.",
    action=Action.INSTALL,
    fixes=(
        *install_on(
            BUILD,
            recipe="module",
            verify="nvidia-smi",
            debian="sudo apt install dkms linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia",
            rhel=f"sudo dnf install kernel-devel-$(uname -r); (sudo akmods --force || sudo dkms autoinstall) && {MODPROBE}",
            suse="sudo zypper install kernel-default-devel && sudo dkms autoinstall && sudo modprobe nvidia",
            other="sudo dkms autoinstall && sudo modprobe nvidia",
            kinds={},
        ),
        Fix(
            BUILD,
            "sudo pacman -Syu linux-headers nvidia-open-dkms",
            verify="nvidia-smi",
            on=("arch",),
            recipe="module",
            kind="install",
            reboot=True,
        ),
    ),
    references=("https://github.com/GoogleCloudPlatform/compute-gpu-installation/issues/25",),
)

REPLACED = "running-kernel-replaced"  # found by the outputs of a text
LOAD = "sudo modprobe nvidia; sudo dmesg | grep -iE 'nvidia|NVRM' | tail -n 20"
NOT_LOADED = Problem(
    id="kernel-module-not-loaded",
    title="The NVIDIA kernel module is not loaded",
    why="A driver is installed, but its module is not loaded. The reason cannot be seen from here.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Load it on the host, then read the reason in the log",
            LOAD,
            verify="nvidia-smi",
            kind="restart",
            where="host",
            needs=("root",),
        ),
    ),
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
    return NOT_INSTALLED.found(f"neither an nvidia module nor a driver library is installed for {_gpus(facts)}")


def nouveau(facts: Facts) -> Finding | None:
    held = {gpu.address: gpu.driver for gpu in facts.pci.gpus if gpu.driver in ("nouveau", "NovaCore", "nova_core")}
    if not held or came_in_its_place(facts):
        return None
    return NOUVEAU.found(f"{next(iter(held.values()))} is bound to {', '.join(held)}", {"gpus": list(held)})


def came_in_its_place(facts: Facts) -> bool:
    """Whether nouveau was loaded because NVIDIA's module could not be: some distributions have a service for that."""
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
    return SECURE_BOOT.found("Secure Boot is enabled and the kernel rejected the module", evidence)


OWN_KEY = re.compile(r"Secure Boot Module Signature key|dkms|akmod", re.IGNORECASE)


def likely_secure_boot(facts: Facts) -> Finding | None:
    """Without the kernel's log: a module for this kernel that is unsigned, or signed on this machine, and is not loaded."""
    if not facts.system.secure_boot or not facts.driver.module_for_running_kernel or known(lambda: bool(facts.kernel_log.lines)):
        return None
    signer = facts.driver.modinfo.get("signer", "")
    if signer and not OWN_KEY.search(signer):
        return None
    words = f"Secure Boot is enabled, and the module is {f'signed by {signer!r}' if signer else 'not signed'}"
    words += "; the kernel log, which would show whether it was rejected, cannot be read"
    return SECURE_BOOT.found(words, {"signer": signer or "none"}, confidence=Confidence.LIKELY)


def not_built(facts: Facts) -> Finding | None:
    if facts.driver.module_for_running_kernel or is_found_by_modprobe(facts):
        return None
    others = sorted({module.kernel for module in facts.driver.installed_modules})
    is_rhel = known(lambda: facts.system.family) == "rhel" or (facts.texts.alone and ".el" in facts.system.kernel)
    precompiled = is_rhel and not has_builder(facts)
    fixes = (PRECOMPILED if others else PRECOMPILED[:1]) if precompiled else NOT_BUILT.fixes
    there = f"modules exist for {', '.join(others)}" if others else "no other module is installed"
    there += f"; {waiting[0]}" if (waiting := unfinished(facts)) else ""
    fixes = (FINISH, *fixes) if waiting else fixes
    return replace(NOT_BUILT, fixes=fixes).found(
        f"no module for the running kernel {facts.system.kernel}; {there}",
        {
            "built_for": others,
            "other_kernel": others[-1] if others else None,
            "headers": known(lambda: facts.driver.kernel_headers),
        },
    )


def is_found_by_modprobe(facts: Facts) -> bool:
    """Whether modinfo finds the module: some systems (NixOS) keep modules outside the standard folders."""
    return known(lambda: bool(facts.driver.modinfo), False)


CAUSES = (
    Cause(NOT_INSTALLED, not_installed),
    Cause(NOUVEAU, nouveau),
    Cause(BLACKLISTED, blacklisted),
    Cause(SECURE_BOOT, secure_boot),
    Cause(GONE, replaced),
    Cause(OF_ANOTHER_KERNEL, of_another_kernel),
    Cause(BUILD_FAILED, build_failed),
    Cause(NOT_BUILT, not_built),
    Cause(SECURE_BOOT, likely_secure_boot),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the kernel module is in Windows")
    if facts.driver.module_version is not None:
        return
    if not facts.pci.gpus:
        raise Skip("no NVIDIA GPU was found on the PCI bus")
    if facts.container.engine:
        yield from in_container(facts)
    else:
        found = NOT_LOADED.found("the nvidia module is not in the running kernel")
        ids = (SWITCHED_OFF.id, REPLACED, *(cause.problem.id for cause in CAUSES))
        yield from first_cause(CAUSES, facts, replace(found, causes=ids))


def in_container(facts: Facts) -> Iterator[Finding]:
    """The host's files, which would show the cause, are not visible here. Another check judges a container without devices."""
    if not facts.devices.gpu_nodes:
        raise Skip("no NVIDIA kernel module is loaded on the host of this container")
    yield NOT_LOADED.found(
        "it is not loaded on the host, but its device nodes exist in this container", confidence=Confidence.UNKNOWN
    )


def summary(facts: Facts) -> str:
    return f"nvidia {facts.driver.module_version} is loaded"


def _gpus(facts: Facts) -> str:
    return ", ".join(gpu.address for gpu in facts.pci.gpus)


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(*dict.fromkeys(cause.problem for cause in CAUSES), NOT_LOADED),
    needs=("gpu-on-bus", "module-flavour"),
)
