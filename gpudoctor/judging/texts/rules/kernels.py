"""Kernels and modules in a text: which kernel runs, which has modules, and which driver holds the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.driver.refused_module import blacklisted
from gpudoctor.judging.driver.replaced_kernel import GONE
from gpudoctor.judging.texts.rules.driver import is_kept_out, is_not_loaded, kernels_with_module, said
from gpudoctor.judging.texts.rules.python import is_blind
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import NEW_INITRAMFS, Action, Confidence, Finding, Fix, Problem, Status

FLATPAK = Problem(
    id="flatpak-driver-differs",
    title="Flatpak has no GL runtime for the loaded driver",
    why="Programs in Flatpak use their own copy of the driver's libraries, of exactly the release of the kernel module. After an "
    "upgrade of the driver they render on the CPU or fail until Flatpak has downloaded the same release.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Let Flatpak download the runtime of the loaded driver",
            "flatpak update",
            verify="flatpak list | grep -i nvidia; cat /proc/driver/nvidia/version",
            on=("host",),
            kind="install",
            needs=("network",),
        ),
    ),
    references=("https://docs.flatpak.org/en/latest/extension.html",),
)
FIRST = Problem(
    id="vfio-id-not-bound",
    title="vfio-pci does not get the GPU: another driver binds it first",
    why="vfio-pci takes a device with the configured id only if no other driver has it when vfio-pci is loaded. Drivers in the "
    "initramfs, or loaded earlier, are first.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Load vfio-pci before the other drivers, then reboot",
            "printf 'softdep nvidia pre: vfio-pci\\nsoftdep nouveau pre: vfio-pci\\nsoftdep snd_hda_intel pre: vfio-pci\\n' | "
            f"sudo tee /etc/modprobe.d/vfio-first.conf && {NEW_INITRAMFS}",
            verify="lspci -nnk -d 10de:",
            on=("host",),
            kind="set",
            reboot=True,
            undo=f"sudo rm /etc/modprobe.d/vfio-first.conf && {NEW_INITRAMFS}",
        ),
    ),
    references=("https://github.com/NVIDIA/kubevirt-gpu-device-plugin/issues/45", "https://docs.kernel.org/driver-api/vfio.html"),
)
NO_SUCH_ID = Problem(
    id="vfio-ids-match-no-gpu",
    title="The ids for vfio-pci are not those of the NVIDIA GPU",
    why="vfio-pci takes the devices whose vendor and device id are in its list. An id of another card, often from a guide, "
    "leaves this GPU to its usual driver.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Show the ids of the GPU and of its audio function, in brackets at the end of the line",
            "lspci -nn -d 10de:",
            on=("host",),
            kind="read",
        ),
        Fix(
            "Write them to the options of vfio-pci (or to vfio-pci.ids= of the kernel's command line), then reboot",
            f"echo options vfio-pci ids=<vfio_ids> | sudo tee /etc/modprobe.d/vfio_ids.conf && {NEW_INITRAMFS}",
            undo=f"sudo rm /etc/modprobe.d/vfio_ids.conf && {NEW_INITRAMFS}",
            verify="lspci -nnk -d 10de:",
            on=("host",),
            kind="set",
            reboot=True,
        ),
    ),
    references=("https://docs.kernel.org/driver-api/vfio.html", "https://wiki.archlinux.org/title/PCI_passthrough_via_OVMF"),
)
PROBLEMS = (FLATPAK, FIRST, NO_SUCH_ID)


def replaced(facts: Facts) -> Iterator[Finding]:
    """No folder of modules, and no installed package, is that of the running kernel."""
    kernel, others = facts.system.kernel, facts.shown.kernels
    flavour = kernel.rpartition("-")[2]
    same_kind = [one for one in others if one.rpartition("-")[2].strip("0123456789") == flavour.strip("0123456789")]
    signs = (f"not found in directory /lib/modules/{kernel}", "couldn't communicate with the NVIDIA driver")
    is_missing = is_not_loaded(facts) or any(said(facts, sign) for sign in signs)
    if same_kind and kernel not in others and is_missing:
        words = f"kernel {kernel} is running, but the installed one is {', '.join(same_kind)}"
        yield GONE.found(words, {"running": kernel, "installed": list(same_kind)}, confidence=Confidence.LIKELY)


def kept_out(facts: Facts) -> Iterator[Finding]:
    """A file of modprobe.d or the kernel's parameters forbid the module, and it is not loaded."""
    found = known(lambda: blacklisted(facts)) if not facts.shown.graphics_mode[1] else None
    if found and (is_not_loaded(facts) or said(facts, "couldn't communicate with the NVIDIA driver")):
        yield replace(found, confidence=Confidence.LIKELY)


def only_added(facts: Facts) -> Iterator[Finding]:
    """DKMS knows the driver's source and has built nothing for the running kernel."""
    entries = [one for one in facts.driver.dkms if one.module.startswith("nvidia")]
    kernel = known(lambda: facts.system.kernel, "")
    if entries and is_not_loaded(facts) and not kernels_with_module(facts) and all(one.state == "added" for one in entries):
        words = f"DKMS has the source of {entries[0].module} {entries[0].version}, but built no module"
        words += f" for the running kernel {kernel}" if kernel else ""
        evidence = {"kernel": kernel, "state": "added"}
        yield facts.problems["module-not-built-after-kernel-update"].found(words, evidence, confidence=Confidence.LIKELY)


def nouveau_loaded(facts: Facts) -> Iterator[Finding]:
    """lsmod lists nouveau and not nvidia, and nothing else in the text explains that."""
    kernel = known(lambda: facts.system.kernel)
    is_other_cause = (
        is_kept_out(facts) or bool(known(lambda: facts.system.secure_boot)) or bool(known(lambda: facts.driver.dkms, ()))
    )
    others = kernels_with_module(facts)
    by_listing = next(filter(None, (_NOUVEAU.search(text) for text in passages(facts))), None)
    if by_listing and (is_blind(facts) or said(facts, "couldn't communicate with the NVIDIA driver")):
        words = f"the GPU's driver is nouveau: {by_listing[0].strip()}"
        yield facts.problems["nouveau-loaded"].found(words, {"loaded": "nouveau"}, confidence=Confidence.LIKELY)
    elif (
        facts.shown.is_loaded("nouveau") and is_not_loaded(facts) and not is_other_cause and not (others and kernel not in others)
    ):
        words = "lsmod lists nouveau, and not nvidia"
        yield facts.problems["nouveau-loaded"].found(words, {"loaded": "nouveau"}, confidence=Confidence.LIKELY)


_NOUVEAU = re.compile(
    r"""
    Device-\d+:\ NVIDIA\b[^\n]*?\bdriver:\ nouveau\b         # inxi
    | configuration:[^\n]*\bdriver=nouveau\b                   # lshw
    | OpenGL\ renderer\ string:\ (?:NV[\dA-F]{2,3}\b|[^\n]*nouveau)
    """,
    re.VERBOSE,
)


def other_flatpak(facts: Facts) -> Iterator[Finding]:
    loaded = known(lambda: facts.driver.module_version)
    there = facts.shown.flatpak_drivers
    if loaded and there and loaded not in there:
        words = f"the loaded driver is {loaded}, but Flatpak has the GL runtime of {', '.join(there)}"
        yield FLATPAK.found(words, {"driver": loaded, "flatpak": list(there)})


def mixed_l4t(facts: Facts) -> Iterator[Finding]:
    """Packages of a Jetson from two releases."""
    packages = [one for one in known(lambda: facts.driver.packages, ()) if one.name.startswith("nvidia-l4t-")]
    releases = {match[1]: one.name for one in packages if (match := re.match(r"(\d\d\.\d+)\.\d+-\d{8}", one.version))}
    if len(releases) > 1:
        words = " and ".join(f"{name} is of R{release}" for release, name in sorted(releases.items()))
        yield facts.problems["jetson-packages-mixed"].found(words, {"releases": sorted(releases)})


def not_first(facts: Facts) -> Iterator[Finding]:
    """The ids of vfio-pci name a GPU that another driver holds."""
    ids = _vfio_ids(facts)
    for gpu in known(lambda: facts.pci.gpus, ()):
        driver = known(lambda gpu=gpu: gpu.driver)  # type: ignore[misc]
        if gpu.model in ids and driver in OTHER_DRIVERS:
            words = f"vfio-pci is configured for {gpu.model}, but {driver} holds {gpu.address}"
            yield FIRST.found(words, {"gpu": gpu.address, "driver": driver}, confidence=Confidence.LIKELY)


def _vfio_ids(facts: Facts) -> set[str]:
    options = "\n".join(known(lambda: tuple(facts.driver.modprobe_options.values()), ()))
    options += "\n" + known(lambda: facts.system.command_line, "")
    return {id.lower() for found in _IDS.findall(options) for id in found.split(",")}


def other_ids(facts: Facts) -> Iterator[Finding]:
    """vfio-pci is configured for a GPU of NVIDIA, and no GPU of the listing has that id."""
    ids, gpus = _vfio_ids(facts), known(lambda: facts.pci.gpus, ())
    meant = sorted(id for id in ids if id.startswith("10de:"))
    drivers = [(gpu, known(lambda gpu=gpu: gpu.driver, "") or "") for gpu in gpus]  # type: ignore[misc]
    held = [(gpu, driver) for gpu, driver in drivers if driver in OTHER_DRIVERS]
    if meant and held and not any(gpu.model in ids for gpu in gpus):
        gpu, driver = held[0]
        words = f"vfio-pci is configured for {', '.join(meant)}, but the GPU at {gpu.address} is {gpu.model} and used by {driver}"
        evidence = {"configured": meant, "vfio_ids": gpu.model, "gpu": gpu.address, "driver": driver}
        yield NO_SUCH_ID.found(words, evidence, confidence=Confidence.LIKELY)


OTHER_DRIVERS = ("nvidia", "nouveau", "nvidiafb")
_IDS = re.compile(r"vfio[-_]pci(?:\.|\ +(?:\S+\ +)*)ids=([\w:,]+)")

RULES = (not_first, other_ids, replaced, kept_out, only_added, nouveau_loaded, other_flatpak, mixed_l4t)
