"""The kernel module could not be compiled: which compiler or which driver it needs. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import install_on
from gpudoctor.knowledge import last_branch
from gpudoctor.knowledge.cuda import table
from gpudoctor.model import Action, Finding, Fix, Problem

BEFORE_TURING = ("Kepler", "Maxwell", "Pascal", "Volta")

OLDER_KERNEL = Fix("Boot the previous kernel from the boot menu; the log shows the compiler's errors", "less <log>")
COMPILER = install_on(
    "Install the compiler that built the kernel, then build the module",
    verify="dkms status && nvidia-smi",
    debian="sudo apt install gcc-<gcc> && sudo dkms autoinstall && sudo modprobe nvidia",
    rhel="sudo dnf install gcc && sudo dkms autoinstall && sudo modprobe nvidia",
    suse="sudo zypper install gcc<gcc> && sudo dkms autoinstall && sudo modprobe nvidia",
    arch="sudo pacman -Syu gcc && sudo dkms autoinstall && sudo modprobe nvidia",
)
NEWER = install_on(
    "Install a newer driver that supports this kernel",
    recipe="driver <newer>",
    verify="dkms status && nvidia-smi",
    debian="(sudo apt install nvidia-driver-<newer> || sudo apt install nvidia-driver)",
    rhel="sudo dnf upgrade '*nvidia*'",
    arch="sudo pacman -Syu",
    reboot=True,
)
BUILD_FAILED = Problem(
    id="dkms-build-failed-new-kernel",
    title="The module could not be compiled for the running kernel",
    why="The compiler failed: this driver does not support this kernel, or the compiler that built the kernel is missing.",
    action=Action.INSTALL,
    fixes=(*NEWER, OLDER_KERNEL),
    references=("https://github.com/linux-surface/linux-surface/issues/573",),
)


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
    """The major version of the gcc that built the kernel, if the build failed because it is missing."""
    missing = re.search(r"unrecognized command[- ]line option|gcc-\d+: (?:command )?not found", log)
    built_by = re.search(r"(?:built by: \S*gcc(?:-\d+)? \(.*\) |gcc-)(\d+)", log)
    return built_by[1] if missing and built_by else None


def newer_driver(facts: Facts) -> str:
    """The next newer production or LTS branch, else the newest; with "-open" unless a GPU is older than Turing."""
    kinds = {gpu.generation for gpu in facts.pci.gpus}
    last = min(filter(None, map(last_branch, kinds)), default=max(row.number for row in table().branches))
    kept = {row.number for row in table().branches if row.kind in ("production", "long-term support") and row.number <= last}
    number = min((number for number in kept if number > (facts.driver.branch or 0)), default=max(kept, default=last))
    return f"{number}-open" if kinds.isdisjoint(BEFORE_TURING) else str(number)
