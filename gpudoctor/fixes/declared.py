"""Settings on NixOS: files in /etc are written from its configuration, and what is written there by hand is lost or refused.

https://wiki.nixos.org/wiki/NVIDIA
https://search.nixos.org/options
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from gpudoctor.model import Fix

_OTHERS = ("debian", "rhel", "suse", "arch")
_OPTIONS = (
    (r"options nvidia-drm modeset=1", "hardware.nvidia.modesetting.enable = true;"),
    (r"NVreg_PreserveVideoMemoryAllocations=1|enable\b[^&;]* nvidia-suspend", "hardware.nvidia.powerManagement.enable = true;"),
    (r"echo 'options ([\w -]+=[\w=:; ./-]+)' \| sudo tee (?:-a )?/etc/modprobe\.d/", 'boot.extraModprobeConfig = "options {}";'),
    (r"'blacklist nouveau\b", 'boot.blacklistedKernelModules = [ "nouveau" ];'),
    (r"echo (\w+) \| sudo tee (?:-a )?/etc/modules-load\.d/", 'boot.kernelModules = [ "{}" ];'),
    (r"s/\^GRUB_CMDLINE_LINUX\w*=\"/&([\w.=,:-]+) /", 'boot.kernelParams = [ "{}" ];'),
    (r"\busermod -aG render,video\b|\busermod -aG video,render\b", 'users.users.NAME.extraGroups = [ "render" "video" ];'),
    (r"\busermod -aG (\w+) ", 'users.users.NAME.extraGroups = [ "{}" ];'),
    (r"\bnvidia-ctk runtime configure\b", "hardware.nvidia-container-toolkit.enable = true;"),
    (r"\bsystemctl enable (?:--now )?nvidia-persistenced\b", "hardware.nvidia.nvidiaPersistenced = true;"),
)


def spoken(fixes: Iterable[Fix], platform: Collection[str]) -> Iterator[Fix]:
    """The fixes with the options of NixOS in place of commands that write into /etc."""
    if "nixos" not in platform or any(other in platform for other in _OTHERS):
        yield from fixes
        return
    told: set[str] = set()
    for fix in fixes:
        option = _option(fix.command)
        if option not in told:
            yield _declared(fix, option) if option else fix
        told |= {option} - {""}


def _option(command: str) -> str:
    for pattern, option in _OPTIONS:
        if match := re.search(pattern, command):
            return option.format(*match.groups())
    return ""


def _declared(fix: Fix, option: str) -> Fix:
    title = f"Write {option} into NixOS's configuration, then rebuild" + (" and reboot" if fix.reboot else "")
    command = "sudo nixos-rebuild boot && sudo reboot" if fix.reboot else "sudo nixos-rebuild switch"
    return replace(fix, title=title, command=command, undo="", kind="manual")
