"""An installed module that is not loaded: it was built for another kernel, or a rule or a kernel parameter blocks it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import install_on
from gpudoctor.judging.driver.driver_packages import has_builder
from gpudoctor.judging.driver.graphics_modes import KEEPS_OUT, ways_of
from gpudoctor.model import Action, Finding, Fix, Problem, Skip, fix_on

VERIFY = "modinfo -F vermagic nvidia; uname -r; nvidia-smi"
REBUILD = (
    "sudo dkms remove nvidia/$(modinfo -F version nvidia) -k $(uname -r); "
    "sudo dkms autoinstall -k $(uname -r) && sudo depmod -a && sudo modprobe nvidia"
)
BY_AKMODS = (
    "sudo dnf install kernel-devel-$(uname -r); (sudo akmods --force --rebuild || "
    "sudo dkms build --force nvidia/$(modinfo -F version nvidia) -k $(uname -r) && "
    "sudo dkms install --force nvidia/$(modinfo -F version nvidia) -k $(uname -r)) && sudo depmod -a && sudo modprobe nvidia"
)
REBUILD_TITLE = "Rebuild the modules for the running kernel, then load them"
BUILD = (
    *install_on(
        REBUILD_TITLE,
        verify=VERIFY,
        risk="disruptive",
        debian=f"sudo apt install linux-headers-$(uname -r); {REBUILD}",
        rhel=BY_AKMODS,
        suse=REBUILD,
    ),
    Fix(
        REBUILD_TITLE,
        "sudo pacman -S --needed linux-headers nvidia-open-dkms && sudo dkms autoinstall --force",
        verify=VERIFY,
        on=("arch",),
        kind="install",
        reboot=True,
    ),
)
INSTALLER = Fix(
    "If a .run installer built the modules: run it again for this kernel",
    "sudo sh NVIDIA-Linux-*.run",
    verify="nvidia-smi",
    needs=("root",),
)
UPGRADED = Fix("If the kernel was just upgraded: boot into it", verify="nvidia-smi", reboot=True)
READY_MADE = (
    Fix(
        "Install the precompiled module for the running kernel, then reboot",
        "sudo dnf upgrade 'kmod-nvidia*' 'nvidia*' && sudo depmod -a",
        verify=VERIFY,
        kind="install",
        reboot=True,
    ),
    Fix(
        "If no such module exists yet: install one that is built on this machine",
        "sudo dnf install kernel-devel-$(uname -r) kmod-nvidia-open-dkms --allowerasing",
        verify=VERIFY,
        kind="install",
        reboot=True,
    ),
)
BOOT_IT = Fix(
    "Boot the kernel that it was built for",
    "sudo grubby --set-default=/boot/vmlinuz-<built_for>",
    on=("rhel",),
    kind="set",
    reboot=True,
)

OF_ANOTHER_KERNEL = Problem(
    id="module-of-another-kernel",
    title="The NVIDIA module on disk was built for another kernel",
    why="Module and kernel must be built with the same configuration and the same compiler. The module was copied from another "
    "kernel, or the kernel was replaced by another one of the same name.",
    action=Action.INSTALL,
    fixes=(*BUILD, UPGRADED, INSTALLER),
)

LOGGED = "|".join(
    (
        r"nvidia[\w-]*: (?:disagrees about version of symbol|version magic '|Unknown symbol )",
        r"module nvidia\w*: \.gnu\.linkonce\.this_module section size must match",
        r"nvidia[\w.-]*['’\"]?: (?:Exec format error|Invalid module format)",
    )
)


def of_another_kernel(facts: Facts) -> Finding | None:
    """Report if the kernel log shows the refusal. Different releases alone prove nothing: a module may work with both."""
    if not facts.driver.module_for_running_kernel:
        return None
    lines = facts.kernel_log.matching(LOGGED)
    if not lines:
        return None
    built_for, running = _built_for(facts), facts.system.kernel
    told = (
        f"kernel {running} rejects a module that was built for {built_for}"
        if built_for
        else f"kernel {running} rejects the module"
    )
    evidence = {"log": lines[-1].text, "built_for": built_for, "running": running}
    return replace(OF_ANOTHER_KERNEL, fixes=tuple(_fixes(facts, built_for))).found(f"{told}: {lines[-1].text}", evidence)


def _built_for(facts: Facts) -> str | None:
    """The kernel in the module's vermagic, if it is not the running one."""
    built_for = known(lambda: facts.driver.modinfo.get("vermagic", ""), "").split(" ")[0]
    return built_for if built_for and built_for != facts.system.kernel else None


def _fixes(facts: Facts, built_for: str | None) -> Iterator[Fix]:
    yield from READY_MADE if facts.system.family == "rhel" and not has_builder(facts) else BUILD
    if built_for:
        yield BOOT_IT
    yield INSTALLER


TAKE_OUT = "sudo sed -i.bak -E '/^\\s*(blacklist|install|alias)\\s+nvidia(\\s|$)/d'"
BLACKLISTED = Problem(
    id="nvidia-module-blacklisted",
    title="The nvidia module is blacklisted",
    why="A file in modprobe.d or a kernel parameter blacklists nvidia, so it is never loaded.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Remove the rule, then load the module",
            f"{TAKE_OUT} <file> && sudo modprobe nvidia",
            verify="nvidia-smi",
            kind="restart",
            needs=("root",),
            undo="sudo mv <file>.bak <file>",
        ),
    ),
)


def blacklisted(facts: Facts) -> Finding | None:
    unread: Skip | None = None
    try:
        for path, text in facts.driver.modprobe_options.items():
            if rule := KEEPS_OUT.search(text):
                problem = replace(BLACKLISTED, fixes=(*ways_of(path, text), *BLACKLISTED.fixes))
                return problem.found(f"{path} contains {rule[1]!r}", {"file": path, "rule": rule[1]})
    except Skip as skip:
        unread = skip
    found = shut_out(facts)
    if unread and not found:
        raise unread
    return found


SHUT_OUT = re.compile(
    r"(?:^|\s)( (?: module_blacklist | modprobe\.blacklist )=(?:\S*,)?nvidia(?:,\S*)? )(?=\s|$)",
    re.VERBOSE,
)
IN_GRUB = "sudo sed -i.bak 's/ *<parameter>//g' /etc/default/grub && "
ON_COMMAND_LINE = fix_on(
    "Remove the kernel parameter, then reboot",
    verify="cat /proc/cmdline; nvidia-smi",
    undo="sudo cp /etc/default/grub.bak /etc/default/grub",
    debian=f"{IN_GRUB}sudo update-grub",
    rhel="sudo grubby --update-kernel=ALL --remove-args=<parameter>",
    suse=f"{IN_GRUB}sudo grub2-mkconfig -o /boot/grub2/grub.cfg",
    arch=f"{IN_GRUB}sudo grub-mkconfig -o /boot/grub/grub.cfg",
    kind="set",
    reboot=True,
)
BY_HAND = Fix("Remove the parameter from the boot loader's configuration, then reboot", verify="cat /proc/cmdline; nvidia-smi")


def shut_out(facts: Facts) -> Finding | None:
    """Report a kernel parameter that blacklists the module. rd.driver.blacklist applies to the initramfs only."""
    found = SHUT_OUT.search(facts.system.command_line)
    if found is None:
        return None
    problem = replace(BLACKLISTED, fixes=(*ON_COMMAND_LINE, replace(BY_HAND, on=("other",))))
    return problem.found(f"the kernel command line contains {found[1]}", {"parameter": found[1]})
