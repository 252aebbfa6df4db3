"""The NVIDIA kernel module is loaded.

What it means
Without the module no program can reach the GPU: nvidia-smi "couldn't communicate with the NVIDIA driver" and CUDA sees no
device.

How it is judged
/proc/driver/nvidia/version exists. Where it does not, the causes are ruled out in this order: no driver is installed,
nouveau holds the GPU, the module is blacklisted, this driver branch dropped the GPU, Secure Boot rejects the module, its
build failed for the running kernel, it was never built for that kernel.

Known exceptions
Under WSL2 the module lives in Windows. In a container /proc shows the host's module; why it is missing, only the host knows.

References
https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.knowledge import architecture_of_device, last_branch
from gpudoctor.model import Action, Cause, Check, Confidence, Finding, Fix, Problem, Skip, Unavailable, first_cause, fix_on

GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"

NOT_INSTALLED = Problem(
    id="no-driver-found",
    title="No NVIDIA driver is installed",
    why="The GPU is there, but neither a kernel module nor driver libraries are. A CUDA toolkit or a pip wheel brings no driver.",
    action=Action.INSTALL,
    fixes=fix_on(
        "Install the driver, then reboot",
        verify="nvidia-smi",
        debian="(sudo ubuntu-drivers install --gpgpu || sudo apt install linux-headers-$(uname -r) nvidia-driver) && sudo reboot",
        rhel="sudo dnf install nvidia-open && sudo reboot",
        suse="sudo zypper install nvidia-open-driver-G06-signed-kmp && sudo reboot",
        arch="sudo pacman -S nvidia-open-dkms linux-headers && sudo reboot",
        other="sudo sh NVIDIA-Linux-*.run && sudo reboot",
    ),
    references=(GUIDE,),
)

BLACKLIST = "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf"
NOUVEAU = Problem(
    id="nouveau-loaded",
    title="The open-source driver nouveau holds the GPU",
    why="nouveau was loaded first and cannot share a GPU with NVIDIA's module; it has no CUDA.",
    action=Action.REBOOT,
    fixes=fix_on(
        "Keep nouveau from loading, rebuild the initramfs, then reboot",
        verify="nvidia-smi",
        debian=f"{BLACKLIST} && sudo update-initramfs -u && sudo reboot",
        rhel=f"{BLACKLIST} && sudo dracut --force && sudo reboot",
        suse=f"{BLACKLIST} && sudo dracut --force && sudo reboot",
        arch=f"{BLACKLIST} && sudo mkinitcpio -P && sudo reboot",
        other=f"{BLACKLIST} && sudo reboot",
    ),
    references=(GUIDE,),
)

BLACKLISTED = Problem(
    id="nvidia-module-blacklisted",
    title="A modprobe rule keeps the nvidia module from loading",
    why="A file in modprobe.d blacklists nvidia or replaces its loading by nothing, so it is never loaded.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Take the rule out, then load the module",
            command="sudo sed -i.bak -E '/^\\s*(blacklist|install|alias)\\s+nvidia(\\s|$)/d' <file> && sudo modprobe nvidia",
            verify="nvidia-smi",
        ),
        Fix("Ubuntu laptops: if prime-select wrote it", command="sudo prime-select on-demand && sudo reboot", on=("debian",)),
    ),
)

DROPPED = Problem(
    id="gpu-dropped-by-driver-branch",
    title="This driver branch no longer supports the GPU",
    why="NVIDIA ended support of this GPU generation with an older branch; newer drivers ignore the device.",
    action=Action.INSTALL,
    fixes=fix_on(
        "Install the last branch that supports it",
        verify="nvidia-smi",
        debian="sudo apt install nvidia-driver-<last_branch> && sudo reboot",
        rhel="sudo dnf install akmod-nvidia-<last_branch>xx && sudo reboot",
        arch="yay -S nvidia-<last_branch>xx-dkms && sudo reboot",
        suse="sudo zypper install nvidia-driver-G06-kmp-default && sudo reboot",
        other="sudo sh NVIDIA-Linux-*-<last_branch>.*.run && sudo reboot",
    ),
    references=("https://github.com/NixOS/nixos-hardware/issues/1828",),
)

SECURE_BOOT = Problem(
    id="secure-boot-module-rejected",
    title="Secure Boot rejects the kernel module",
    why="The firmware loads only modules signed with an enrolled key, and the key that signed this one was never enrolled. "
    "The commands ask for a password; at the next boot choose 'Enroll MOK' on the blue screen and give it again.",
    action=Action.REBOOT,
    fixes=fix_on(
        "Enrol the key that signs the module",
        verify="nvidia-smi",
        debian="(sudo update-secureboot-policy --enroll-key || sudo mokutil --import /var/lib/dkms/mok.pub) && sudo reboot",
        rhel="sudo kmodgenca -a; sudo mokutil --import /etc/pki/akmods/certs/public_key.der && sudo reboot",
        arch="sudo mokutil --import /var/lib/dkms/mok.pub && sudo reboot",
        suse="sudo mokutil --import /var/lib/dkms/mok.pub && sudo reboot",
        other="sudo mokutil --import /var/lib/dkms/mok.pub && sudo reboot",
    ),
    references=("https://unix.stackexchange.com/questions/535434/what-exactly-is-mok-in-linux-for",),
)

BUILD_FAILED = Problem(
    id="dkms-build-failed-new-kernel",
    title="The module could not be compiled for the running kernel",
    why="The compiler failed: this driver does not know this kernel, or the compiler that built the kernel is missing.",
    action=Action.INSTALL,
    fixes=(
        *fix_on(
            "Install a newer driver, which knows this kernel",
            verify="dkms status && nvidia-smi",
            debian="sudo apt install nvidia-driver-580-open && sudo reboot",
            rhel="sudo dnf upgrade '*nvidia*' && sudo reboot",
            arch="sudo pacman -Syu nvidia-open-dkms && sudo reboot",
        ),
        Fix("Boot the previous kernel from the boot menu; the compiler's words are in the log", command="less <log>"),
    ),
    references=("https://github.com/linux-surface/linux-surface/issues/573",),
)

NOT_BUILT = Problem(
    id="module-not-built-after-kernel-update",
    title="The kernel was updated, and the NVIDIA module was not built for it",
    why="The module is compiled for each kernel. The headers of the running kernel (or DKMS) were missing when it was updated.",
    action=Action.INSTALL,
    fixes=fix_on(
        "Install the headers of the running kernel and build the module",
        verify="nvidia-smi",
        debian="sudo apt install dkms linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia",
        rhel="sudo dnf install kernel-devel-$(uname -r); (sudo akmods --force || sudo dkms autoinstall) && sudo modprobe nvidia",
        arch="sudo pacman -S linux-headers nvidia-open-dkms && sudo modprobe nvidia",
        suse="sudo zypper install kernel-default-devel && sudo dkms autoinstall && sudo modprobe nvidia",
        other="sudo dkms autoinstall && sudo modprobe nvidia",
    ),
    references=("https://github.com/GoogleCloudPlatform/compute-gpu-installation/issues/25",),
)

NOT_LOADED = Problem(
    id="kernel-module-not-loaded",
    title="The NVIDIA kernel module is not loaded",
    why="A driver is installed, but its module is not in the kernel; why is not visible from here.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Load it on the host; the kernel log then says what stands in its way",
            command="sudo modprobe nvidia; sudo dmesg | grep -iE 'nvidia|NVRM' | tail -n 20",
            verify="nvidia-smi",
        ),
    ),
)

BLACKLIST_RULE = r"^\s*(blacklist\s+nvidia|install\s+nvidia\s+(?:/usr)?/bin/(?:true|false)|alias\s+nvidia\s+off)\s*$"
REJECTED = (
    r"Loading of (unsigned )?module.* rejected|unavailable key is rejected|PKCS#7 signature not signed"
    r"|unsigned module loading is restricted|Key was rejected"
)


def not_installed(facts: Facts) -> Finding | None:
    if facts.driver.installed_modules or facts.driver.library_versions:
        return None
    return NOT_INSTALLED.found(f"no nvidia module and no driver library for {_gpus(facts)}")


def nouveau(facts: Facts) -> Finding | None:
    held = [gpu.address for gpu in facts.pci.gpus if gpu.driver == "nouveau"]
    if "nouveau" not in facts.driver.loaded_modules or not held:
        return None
    return NOUVEAU.found(f"nouveau is bound to {', '.join(held)}", {"gpus": held})


def blacklisted(facts: Facts) -> Finding | None:
    for path, text in facts.driver.modprobe_options.items():
        rule = re.search(BLACKLIST_RULE, text, re.M)
        if rule:
            return BLACKLISTED.found(f"{path} says {rule[1]!r}", {"file": path, "rule": rule[1]})
    return None


def dropped(facts: Facts) -> Finding | None:
    """In the driver's words; where the log is closed to us, by the generation of the GPU."""
    try:
        words = re.search(r"supported through the NVIDIA (\d+)\.xx Legacy drivers", facts.kernel_log.nvrm)
        last = int(words[1]) if words else None
    except Unavailable:
        words, last = None, outgrown(facts)
    if last is None:
        return None
    return DROPPED.found(
        f"the installed driver ignores {_gpus(facts)}; R{last} is the last branch that supports it",
        {"last_branch": last, "installed": facts.driver.modinfo.get("version")},
        confidence=Confidence.CONFIRMED if words else Confidence.LIKELY,
    )


def outgrown(facts: Facts) -> int | None:
    """The last branch for the GPUs here, if the installed driver is of a newer one."""
    branches = [last_branch(architecture_of_device(gpu.device_id)) for gpu in facts.pci.gpus]
    last = max((branch for branch in branches if branch), default=None)
    return last if last and None not in branches and (facts.driver.branch or 0) > last else None


def secure_boot(facts: Facts) -> Finding | None:
    if not facts.system.secure_boot or not facts.driver.module_for_running_kernel:
        return None
    lines = facts.kernel_log.matching(REJECTED)
    if not lines:
        return None
    return SECURE_BOOT.found(
        "Secure Boot is on and the kernel refused the module",
        {"log": lines[-1].text, "signer": facts.driver.modinfo.get("signer", "none")},
    )


def build_failed(facts: Facts) -> Finding | None:
    if facts.driver.module_for_running_kernel or not facts.driver.kernel_headers:
        return None
    for path, text in facts.driver.dkms_make_logs.items():
        errors = re.findall(r"^.*(?:\berror:|\*\*\* ).*$", text, re.M)
        built_for = re.search(r"for kernel (\S+)", text)
        if errors and (built_for is None or built_for[1] == facts.system.kernel):
            error = errors[0].strip()
            return BUILD_FAILED.found(f"the build for {facts.system.kernel} failed: {error}", {"log": path, "error": error})
    return None


def not_built(facts: Facts) -> Finding | None:
    if facts.driver.module_for_running_kernel or is_found_by_modprobe(facts):
        return None
    others = sorted({module.kernel for module in facts.driver.installed_modules})
    return NOT_BUILT.found(
        f"no module for the running kernel {facts.system.kernel}; there is one for {', '.join(others) or 'no kernel'}",
        {"running": facts.system.kernel, "built_for": others, "headers": facts.driver.kernel_headers},
    )


def is_found_by_modprobe(facts: Facts) -> bool:
    """Some systems (NixOS) keep modules elsewhere; without modinfo only the usual places count."""
    try:
        return bool(facts.driver.modinfo)
    except Unavailable:
        return False


CAUSES = (
    Cause(NOT_INSTALLED, not_installed),
    Cause(NOUVEAU, nouveau),
    Cause(BLACKLISTED, blacklisted),
    Cause(DROPPED, dropped),
    Cause(SECURE_BOOT, secure_boot),
    Cause(BUILD_FAILED, build_failed),
    Cause(NOT_BUILT, not_built),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the kernel module lives in Windows")
    if facts.driver.module_version is not None:
        return
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
    area="driver",
    problems=(*(cause.problem for cause in CAUSES), NOT_LOADED),
    needs=("gpu-on-bus", "module-flavour"),
)
