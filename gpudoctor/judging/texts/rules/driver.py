"""The driver's parts in a text: what is installed, loaded and open to the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.driver.graphics_modes import KEEPS_OUT
from gpudoctor.judging.texts.rules.said import complains, passages
from gpudoctor.model import Confidence, Finding, Fix, Status

OF_DRIVER = re.compile(
    r"""
    (?:lib)?nvidia-(?:driver|utils|compute|dkms|kernel|x11-drv|gl|smi|ml\d?)\b.*
    | nvidia-\d{3}
    | libcuda1
    | cuda-drivers.*
    | kmod-nvidia.*
    | xserver-xorg-video-nvidia.*
    """,
    re.VERBOSE,
)
NO_CUDA = ("CUDA unknown error", "cuInit", "CUDA_ERROR_UNKNOWN", "CUDA initialization")


def unsigned(facts: Facts) -> Iterator[Finding]:
    """Secure Boot rejects a module: asked together with a module that does not load, or is built and not loaded."""
    words = ("modprobe", "Key was rejected", "insmod", "couldn't communicate with the NVIDIA driver")
    refused = next((word for word in words if said(facts, word)), None)
    waits = is_not_loaded(facts) and _is_built(facts) and not is_kept_out(facts)
    if known(lambda: facts.system.secure_boot) and (refused or waits) and facts.shown.is_loaded("nvidia") is not True:
        text = "Secure Boot is on, and the kernel module " + ("does not load" if refused else "is built, but not loaded")
        yield facts.problems["secure-boot-module-rejected"].found(text, {"secure_boot": True}, confidence=Confidence.LIKELY)


def is_not_loaded(facts: Facts) -> bool:
    """Whether lsmod shows that the nvidia module is not loaded, or modinfo that there is none."""
    by_lsmod = facts.shown.is_loaded("nvidia") is False or bool(known(lambda: "nvidia" not in facts.driver.loaded_modules, False))
    return by_lsmod or said(facts, "modinfo: ERROR: Module nvidia not found")


def kernels_with_module(facts: Facts) -> set[str]:
    """The kernels for which the module is on disk."""
    built = known(lambda: facts.driver.dkms, ())
    by_dkms = {one.kernel for one in built if one.module.startswith("nvidia") and one.kernel and one.state == "installed"}
    packages = known(lambda: facts.driver.packages, ())
    by_package = {match[1] for one in packages if one.name == "kmod-nvidia" and (match := _KMOD.match(one.version))}
    return by_dkms | by_package | {one.kernel for one in known(lambda: facts.driver.installed_modules, ())}


_KMOD = re.compile(r"(\d+\.\d+\.\d+-\S+?\.(?:x86_64|aarch64))-\d")  # kmod-nvidia-KERNEL-RELEASE, read as name and version


def _is_built(facts: Facts) -> bool:
    return facts.system.kernel in kernels_with_module(facts)


def is_kept_out(facts: Facts) -> bool:
    """Whether something else keeps the module from being loaded."""
    files = known(lambda: tuple(facts.driver.modprobe_options.values()), ())
    tool, mode = facts.shown.graphics_mode
    return any(KEEPS_OUT.search(text) for text in files) or bool(tool and mode in ("intel", "integrated", "amd", "vfio"))


def not_built(facts: Facts) -> Iterator[Finding]:
    """The module is on disk for other kernels than the running one, and it is not loaded."""
    kernel, kernels = known(lambda: facts.system.kernel, ""), sorted(kernels_with_module(facts))
    fails = is_not_loaded(facts) or (complains(facts) and not known(lambda: facts.nvml.count, 0))
    if kernel and kernels and kernel not in kernels and fails:
        words = f"the module is built for {', '.join(kernels)}, not for the running kernel {kernel}"
        words += ", and it is not loaded" * is_not_loaded(facts)
        evidence = {"running_kernel": kernel, "kernel": kernel, "built_for": kernels}
        yield facts.problems["module-not-built-after-kernel-update"].found(words, evidence, confidence=Confidence.LIKELY)
    elif not kernels and is_not_loaded(facts) and any(_NO_FOLDER.search(text) for text in passages(facts)):
        builder = next((one.name for one in known(lambda: facts.driver.packages, ()) if _BUILDER.match(one.name)), "")
        if builder:
            words = f"{builder} is installed, but the folder of the running kernel has no nvidia module"
            evidence = {"running_kernel": kernel, "builder": builder}
            yield facts.problems["module-not-built-after-kernel-update"].found(words, evidence, confidence=Confidence.LIKELY)


_NO_FOLDER = re.compile(
    r"""
    /lib/modules/[^/\s]+/ (?: extra | updates | weak-updates | kernel/drivers/video )
    \S*nvidia\S*:\ No\ such\ file
    """,
    re.VERBOSE,
)
_BUILDER = re.compile(r"akmod-nvidia|nvidia\S*-dkms|dkms-nvidia|kmod-nvidia\S*-dkms")


def no_fabric_manager(facts: Facts) -> Iterator[Finding]:
    """The service does not run, and CUDA does not start."""
    unit = facts.services.unit("nvidia-fabricmanager")
    blind = "False" in facts.shown.answers.values() or any(_NOT_READY.search(text) for text in passages(facts))
    waits = facts.shown.fabric in ("in progress", "not started")
    if unit and unit.active in ("inactive", "failed") and (blind or waits or known(lambda: facts.pci.nvswitches, ())):
        effect = f"the fabric's state is {facts.shown.fabric!r}" if waits else "CUDA does not start"
        words = f"nvidia-fabricmanager is {unit.active}, and {effect}"
        found = facts.problems["fabricmanager-not-running-802"].found(words, {"state": unit.active}, confidence=Confidence.LIKELY)
        yield replace(found, because="fabricmanager-version-mismatch")


_NOT_READY = re.compile(
    r"""
    error\ 802 | system\ not\ yet\ initialized
    | is_available\(\)[^\n]{0,60}\b(?:False|hangs?)\b
    | \b(?:cuda|gpus?)\b[^\n.]{0,30}\b(?:not\ (?:available|work\w*|usable)|unavailable|fails?)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def linux_driver_in_wsl(facts: Facts) -> Iterator[Finding]:
    packages = known(lambda: facts.driver.packages, ())
    names = [one.name for one in packages if OF_DRIVER.fullmatch(one.name) and one.state == "installed"]
    names = names or [name for text in passages(facts) for name in _CUT_OUT.findall(text) if OF_DRIVER.fullmatch(name)]
    is_wsl = known(lambda: facts.system.wsl, 0) == 2 or (said(facts, "/usr/lib/wsl/") and said(facts, "WSL"))
    if is_wsl and names:
        words = f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} installed inside WSL, which uses the Windows driver"
        yield facts.problems["wsl-linux-driver-installed"].found(words, {"packages": names}, confidence=Confidence.LIKELY)
    elif is_wsl and (taken := _before_wsl(facts)):
        words = f"the loader finds {taken} before the library of the Windows driver in /usr/lib/wsl/lib"
        yield facts.problems["wsl-linux-driver-installed"].found(words, {"libraries": [taken]}, confidence=Confidence.LIKELY)


_CUT_OUT = re.compile(
    r"(?m)^ii[ \t]+([a-z][\w.+-]+)(?::\w+)?[ \t]+\d{3}\.\d[\w.:~+-]*[ \t]*$"
)  # dpkg -l | awk, without its other columns


def outside_of_wsl_folder(facts: Facts) -> Iterator[Finding]:
    """The driver's library is in WSL's folder, and a program or the linker does not look there."""
    text = "\n".join(passages(facts))
    if _NO_LIBCUDA.search(text) and _LISTED_IN_WSL.search(text):
        words = "the driver's libcuda is in /usr/lib/wsl/lib, and the program does not look there"
        problem = facts.problems["wsl-libcuda-not-symlink"]
        if "cannot find -lcuda" not in text and (facts.shown.lacks_libcuda or "libcuda.so.1" in text):
            problem = replace(problem, title=NOT_SEARCHED, why=WHY_NOT_SEARCHED, fixes=(SEARCH_IT,), status=Status.FAIL)
        yield problem.found(words, confidence=Confidence.LIKELY)


NOT_SEARCHED = "The loader does not search WSL's folder with the driver's libraries"
WHY_NOT_SEARCHED = (
    "WSL adds /usr/lib/wsl/lib to the loader's folders when it starts. Where that is switched off or its file was deleted, only "
    "shells that set LD_LIBRARY_PATH find libcuda, and services do not."
)
SEARCH_IT = Fix(
    "Add the folder to those of the loader",
    "echo /usr/lib/wsl/lib | sudo tee /etc/ld.so.conf.d/ld.wsl.conf && sudo ldconfig",
    verify="ldconfig -p | grep libcuda",
    undo="sudo rm /etc/ld.so.conf.d/ld.wsl.conf && sudo ldconfig",
    kind="set",
    needs=("root",),
)
_NO_LIBCUDA = re.compile(r"libcuda\.so(?:\.1)?: cannot open shared object|cannot find -lcuda")
_LISTED_IN_WSL = re.compile(r"/usr/lib/wsl/lib/?[^\n]*(?:\n[^$\n]*){0,12}\blibcuda\.so\b")


def _before_wsl(facts: Facts) -> str | None:
    """The libcuda.so.1 that ldconfig lists before WSL's."""
    found = facts.shown.libcuda
    return found[0] if len(found) > 1 and not found[0].startswith("/usr/lib/wsl/") and "compat" not in found[0] else None


_SMI_WORKS = re.compile(r"(?i)nvidia-smi\b[^.\n]{0,30}\b(?:works?|runs?|is fine|lists)\b")


def no_uvm(facts: Facts) -> Iterator[Finding]:
    """The text lists the driver's nodes, without the one that CUDA needs."""
    nodes = facts.shown.nodes
    is_loaded = facts.shown.is_loaded("nvidia_uvm")
    is_fine = known(lambda: facts.nvml.count, 0) > 0 or any(_SMI_WORKS.search(text) for text in passages(facts))
    is_blind = is_fine and "False" in facts.shown.answers.values()
    is_asked = is_loaded is False or is_blind or any(said(facts, words) for words in NO_CUDA)
    names = {*nodes, *(f"/dev/{name}" for text in passages(facts) for found in _NAMES.findall(text) for name in found.split())}
    names |= {name for text in passages(facts) for found in _PATHS.findall(text) for name in found.split()}
    if "/dev/nvidiactl" in names and "/dev/nvidia-uvm" not in names and is_loaded is not True and is_asked:
        words = "the text lists /dev/nvidiactl, but not /dev/nvidia-uvm, which CUDA needs"
        words += ", and the module nvidia_uvm is not loaded" if is_loaded is False else ""
        yield facts.problems["nvidia-uvm-missing"].found(words, {"nodes": sorted(names)}, confidence=Confidence.LIKELY)


_PATHS = re.compile(r"\bls /dev/nvidia\*\s*\n((?:\s*/dev/nvidia[\w-]*)+)")
_NAMES = re.compile(r"\bls /dev/? ?(?:\| ?e?grep \S*nvidia\S*)?\s*\n((?:\s*nvidia[\w-]*\s*\n)+)")


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


def proprietary_module(facts: Facts) -> Iterator[Finding]:
    """modinfo shows the proprietary module, the driver rejects the GPU, and the GPU's generation needs the open one."""
    license = known(lambda: facts.driver.modinfo.get("license")) or next(filter(None, map(_license, passages(facts))), None)
    gpus = [gpu for gpu in known(lambda: facts.pci.gpus, ()) if known(lambda gpu=gpu: gpu.generation) == "Blackwell"]  # type: ignore[misc]
    fails = facts.shown.has_no_devices or said(facts, "No devices were found") or said(facts, "RmInitAdapter failed")
    if gpus and license == "NVIDIA" and fails:
        words = f"modinfo shows the proprietary module (license NVIDIA), and {gpus[0].address} is of the Blackwell generation"
        evidence = {"address": gpus[0].address, "wanted_branch": str(known(lambda: facts.driver.branch) or 580)}
        yield facts.problems["blackwell-needs-open-module"].found(words, evidence, confidence=Confidence.LIKELY)


def _license(text: str) -> str | None:
    match = _LICENSE.search(text)
    return match[1] if match else None


_LICENSE = re.compile(r"modinfo\b[^\n]*-F *license[^\n]*\n(NVIDIA|Dual MIT/GPL)\s*$", re.MULTILINE)


def said(facts: Facts, words: str) -> bool:
    """Whether a text contains these words."""
    return any(words in passage.text for text in facts.texts.all for passage in text.passages)


RULES = (
    unsigned,
    not_built,
    no_fabric_manager,
    linux_driver_in_wsl,
    outside_of_wsl_folder,
    no_uvm,
    closed_nodes,
    proprietary_module,
)
