"""The driver's parts in a text: what is installed, loaded and open to the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import is_lxc
from gpudoctor.model import Confidence, Finding, Fix

_OF_DRIVER = re.compile(
    r"""
    (?:lib)?nvidia-(?:driver|utils|compute|dkms|kernel|x11-drv|gl)\b.*
    | cuda-drivers.*
    | kmod-nvidia.*
    | xserver-xorg-video-nvidia.*
    """,
    re.VERBOSE,
)
_RELEASE = re.compile(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)")
TITLE_IN_LXC = "The container has driver libraries of another release than the host"
WHY_IN_LXC = "A container uses the kernel module of its host, and the libraries in the container must be of the same release."
IN_LXC = Fix(
    "In the container: remove its driver packages, and install the libraries of the host's release from its .run file",
    "sh NVIDIA-Linux-*-<module>.run --no-kernel-module",
    verify="nvidia-smi",
    needs=("root",),
)
NO_CUDA = ("CUDA unknown error", "cuInit", "CUDA_ERROR_UNKNOWN", "CUDA initialization")


def another_release(facts: Facts) -> Iterator[Finding]:
    """The packages are of another release than the loaded module."""
    loaded = known(lambda: facts.driver.module_version)
    packages = [one for one in known(lambda: facts.driver.packages, ()) if _OF_DRIVER.fullmatch(one.name)]
    releases = {match[1]: one.name for one in packages if one.state == "installed" and (match := _RELEASE.match(one.version))}
    on_disk = known(lambda: facts.driver.modinfo.get("version"))
    if on_disk and not releases:
        releases = {on_disk: "the module on disk"}
    if loaded and releases and loaded not in releases and not facts.system.wsl:
        installed, name = next(iter(releases.items()))
        other = f"{name} is {installed}" if name.startswith("the ") else f"{name} {installed} is installed"
        evidence = {"module": loaded, "libraries": sorted(releases), "module_on_disk": installed}
        problem, words = facts.problems["driver-library-version-mismatch"], f"the loaded kernel module is {loaded}, but {other}"
        if is_lxc(facts):
            problem = replace(facts.problems["driver-libraries-in-image"], title=TITLE_IN_LXC, why=WHY_IN_LXC, fixes=(IN_LXC,))
        else:
            words += ": it is used after a reboot"
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)


def unsigned(facts: Facts) -> Iterator[Finding]:
    """Secure Boot rejects a module: asked together with a module that does not load."""
    words = ("modprobe", "Key was rejected", "insmod", "couldn't communicate with the NVIDIA driver")
    refused = next((word for word in words if said(facts, word)), None)
    if known(lambda: facts.system.secure_boot) and refused and facts.shown.is_loaded("nvidia") is not True:
        text = "Secure Boot is on, and the kernel module does not load"
        yield facts.problems["secure-boot-module-rejected"].found(text, {"secure_boot": True}, confidence=Confidence.LIKELY)


def not_built(facts: Facts) -> Iterator[Finding]:
    """DKMS has built the module for other kernels than the running one, and it is not loaded."""
    kernel, built = facts.system.kernel, [one for one in facts.driver.dkms if one.module.startswith("nvidia")]
    kernels = sorted({one.kernel for one in built if one.kernel and one.state == "installed"})
    if kernels and kernel not in kernels and facts.shown.is_loaded("nvidia") is False:
        words = f"DKMS has built the module for {', '.join(kernels)}, not for the running kernel {kernel}, and it is not loaded"
        evidence = {"running_kernel": kernel, "kernel": kernel, "built_for": kernels}
        yield facts.problems["module-not-built-after-kernel-update"].found(words, evidence, confidence=Confidence.LIKELY)


def no_fabric_manager(facts: Facts) -> Iterator[Finding]:
    """The service does not run, and CUDA does not start."""
    unit = facts.services.unit("nvidia-fabricmanager")
    blind = "False" in facts.shown.answers.values() or said(facts, "error 802") or said(facts, "system not yet initialized")
    waits = facts.shown.fabric in ("in progress", "not started")
    if unit and unit.active in ("inactive", "failed") and (blind or waits or known(lambda: facts.pci.nvswitches, ())):
        effect = f"the fabric's state is {facts.shown.fabric!r}" if waits else "CUDA does not start"
        words = f"nvidia-fabricmanager is {unit.active}, and {effect}"
        found = facts.problems["fabricmanager-not-running-802"].found(words, {"state": unit.active}, confidence=Confidence.LIKELY)
        yield replace(found, because="fabricmanager-version-mismatch")


def linux_driver_in_wsl(facts: Facts) -> Iterator[Finding]:
    packages = known(lambda: facts.driver.packages, ())
    names = [one.name for one in packages if _OF_DRIVER.fullmatch(one.name) and one.state == "installed"]
    if facts.system.wsl == 2 and names:
        words = f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} installed inside WSL, which uses the Windows driver"
        yield facts.problems["wsl-linux-driver-installed"].found(words, {"packages": names}, confidence=Confidence.LIKELY)
    elif facts.system.wsl == 2 and (taken := _before_wsl(facts)):
        words = f"the loader finds {taken} before the library of the Windows driver in /usr/lib/wsl/lib"
        yield facts.problems["wsl-linux-driver-installed"].found(words, {"libraries": [taken]}, confidence=Confidence.LIKELY)


def _before_wsl(facts: Facts) -> str | None:
    """The libcuda.so.1 that ldconfig lists before WSL's."""
    found = facts.shown.libcuda
    return found[0] if len(found) > 1 and not found[0].startswith("/usr/lib/wsl/") and "compat" not in found[0] else None


def no_uvm(facts: Facts) -> Iterator[Finding]:
    """The text lists the driver's nodes, without the one that CUDA needs."""
    nodes = facts.shown.nodes
    is_loaded = facts.shown.is_loaded("nvidia_uvm")
    is_blind = known(lambda: facts.nvml.count, 0) > 0 and "False" in facts.shown.answers.values()
    is_asked = is_loaded is False or is_blind or any(said(facts, words) for words in NO_CUDA)
    if "/dev/nvidiactl" in nodes and "/dev/nvidia-uvm" not in nodes and is_loaded is not True and is_asked:
        words = "the text lists /dev/nvidiactl, but not /dev/nvidia-uvm, which CUDA needs"
        words += ", and the module nvidia_uvm is not loaded" if is_loaded is False else ""
        yield facts.problems["nvidia-uvm-missing"].found(words, {"nodes": sorted(nodes)}, confidence=Confidence.LIKELY)


def closed_nodes(facts: Facts) -> Iterator[Finding]:
    """Nodes whose mode excludes the user that `id` shows."""
    user = facts.shown.identity
    closed = {path: node for path, node in facts.shown.nodes.items() if not node["mode"] & 0o006}
    if user is None or user["uid"] == 0 or not closed:
        return
    path, node = next(iter(closed.items()))
    group = node.get("group", "")
    if group in user["groups"].values() or not re.fullmatch(r"/dev/nvidia(?:\d+|ctl|-uvm)", path):
        return
    words = f"{path} has mode {node['mode']:04o} and group {group}, and the user of the text is not in that group"
    evidence = {"node": path, "mode": f"{node['mode']:04o}", "group": group}
    yield facts.problems["dev-nvidia-permission-denied"].found(words, evidence, confidence=Confidence.LIKELY)


def said(facts: Facts, words: str) -> bool:
    """Whether a text contains these words."""
    return any(words in passage.text for text in facts.texts.all for passage in text.passages)


RULES = (another_release, unsigned, not_built, no_fabric_manager, linux_driver_in_wsl, no_uvm, closed_nodes)
