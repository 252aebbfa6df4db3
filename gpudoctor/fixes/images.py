"""Fixes for systems that are images: what installs packages elsewhere cannot change them, or changes only their next image.

https://coreos.github.io/rpm-ostree/administrator-handbook/
https://documentation.suse.com/sle-micro/6.1/html/Micro-transactional-updates/index.html
https://www.flatcar.org/docs/latest/setup/customization/using-nvidia/
https://www.talos.dev/latest/talos-guides/configuration/nvidia-gpu/
https://cloud.google.com/container-optimized-os/docs/how-to/run-gpus
https://bottlerocket.dev/en/os/latest/#/concepts/variants/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpudoctor.fixes.distribution import OSTREE, TRANSACTIONAL, Distribution
from gpudoctor.model import Fix

_INSTALLS = re.compile(
    r"""
    \b(?: apt | apt-get | dnf | yum | zypper | pacman | dkms | akmods | update-initramfs | ubuntu-drivers )\b
    | NVIDIA-Linux-\S*\.run
    """,
    re.VERBOSE,
)
_WRITES_IMAGE = re.compile(r"\bsudo (?:sed -i\S*|tee|rm|mv|cp|ln) [^&]*\s/(?:usr|lib)/")
_NEW_INITRAMFS = re.compile(r"\(sudo update-initramfs -u \|\| [^)]*\)|sudo dracut (?:--force|-f)")
INITRAMFS = {OSTREE: "sudo rpm-ostree initramfs --enable", TRANSACTIONAL: "sudo transactional-update initrd"}
_BY_DNF = re.compile(r"sudo dnf install(?: -y)?((?: [\w.+-]+)+)")
_BY_ZYPPER = re.compile(r"sudo zypper install((?: [\w.+-]+)+)")
_ENDING = ", then reboot"
HOW: Mapping[str, Fix] = {
    "flatcar": Fix(
        "On Flatcar: enable its extension with NVIDIA's driver, such as nvidia-drivers-570-open, in "
        "/etc/flatcar/enabled-sysext.conf, then reboot"
    ),
    "talos": Fix(
        "On Talos: build an image with the extensions nvidia-open-gpu-kernel-modules-production and "
        "nvidia-container-toolkit-production (https://factory.talos.dev), then upgrade the node to it with talosctl"
    ),
    "cos": Fix(
        "On Container-Optimized OS: install Google's driver",
        "sudo cos-extensions install gpu",
        needs=("root", "network"),
        kind="set",
    ),
    "bottlerocket": Fix("On Bottlerocket: start the node from a variant with NVIDIA's driver (its name ends in -nvidia)"),
    "steamos": Fix("On SteamOS: use another distribution for NVIDIA GPUs; its image has no driver for them"),
}


def spoken(fixes: Iterable[Fix], machine: Distribution) -> Iterator[Fix]:
    """Of several fixes that install something, the way of such a system stands in for the first."""
    told = False
    for fix in fixes:
        fix = _with_initramfs(fix, machine)
        if not machine.image or not (_INSTALLS.search(fix.command) or _WRITES_IMAGE.search(fix.command)):
            yield fix
        elif layered := _layered(fix, machine):
            yield layered
        elif not told:
            told = True
            yield (
                replace(HOW[machine.distribution], verify=fix.verify)
                if machine.distribution in HOW
                else _by_hand(fix, machine.image == TRANSACTIONAL)
            )


def _with_initramfs(fix: Fix, machine: Distribution) -> Fix:
    """On such a system, dracut cannot write the initramfs itself."""
    by = INITRAMFS.get(machine.image)
    return replace(fix, command=_NEW_INITRAMFS.sub(by, fix.command)) if by else fix


def _layered(fix: Fix, machine: Distribution) -> Fix | None:
    pattern, said = {
        OSTREE: (_BY_DNF, "rpm-ostree install"),
        TRANSACTIONAL: (_BY_ZYPPER, "transactional-update pkg install"),
    }.get(machine.image, (None, ""))
    match = pattern.fullmatch(fix.command) if pattern else None
    if not match:
        return None
    title = fix.title if fix.title.endswith(_ENDING) else fix.title + _ENDING
    needs = tuple(dict.fromkeys((*fix.needs, "root", "network")))
    return replace(fix, title=title, command=f"sudo {said}{match[1]}", undo="", needs=needs, reboot=True)


def _by_hand(fix: Fix, is_transactional: bool) -> Fix:
    title = fix.title.removesuffix(_ENDING)
    if is_transactional:
        title = f"{title} in a transaction (sudo transactional-update shell){_ENDING}"
    else:
        title = f"{title} (in the image of this system, or in a container that has it: distrobox, Toolbx)"
    return replace(fix, title=title, command="", undo="", kind="manual", reboot=False)
