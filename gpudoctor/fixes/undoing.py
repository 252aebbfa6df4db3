"""The undo of a command, derived from the command if the fix does not state it."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import replace

from gpudoctor.model import NEW_INITRAMFS, Fix

DNF = "sudo dnf history undo last"
_PACKAGES = r"(?P<packages>(?:\$\([^)]*\)|(?!&&|\|\||[;|)]).)+)"
# Removing these has no benefit.
HARMLESS = re.compile(
    r"""
    (?:linux-(?:headers|image|modules)            # Debian, Ubuntu, Arch
    | kernel-(?:uek-)?(?:devel|headers|modules)   # RHEL, Oracle Linux, SUSE
    | nvidia-dkms | dkms | curl
    )\b.*
    """,
    re.VERBOSE,
)
INSTALLS = (
    (rf"sudo apt(?:-get)? install (?!--reinstall|--fix-broken|--only-upgrade){_PACKAGES}", "sudo apt remove {packages}"),
    (rf"sudo pacman -S(?:yu)? {_PACKAGES}", "sudo pacman -Rns {packages}"),
    (rf"sudo zypper (?:install|in) (?!--force){_PACKAGES}", "sudo zypper remove {packages}"),
    (r"sudo dnf (?:install|upgrade|downgrade|remove|reinstall|swap)\b", DNF),
)
CHANGES = (
    (r"sudo sed -i\.bak .*?['\"] (?P<file>/\S+|<file>)(?= |$)", "sudo mv {file}.bak {file}"),
    (r"tee (?!-a)(?P<file>/etc/\S+)", "sudo rm {file}"),
    (r"sudo systemctl enable --now (?P<unit>[\w.@-]+)", "sudo systemctl disable --now {unit}"),
    (r"sudo systemctl enable (?!-)(?P<unit>[\w.@-]+)", "sudo systemctl disable {unit}"),
    (r"sudo systemctl mask (?P<unit>[\w.@-]+)", "sudo systemctl unmask {unit}"),
    (r"sudo systemctl disable --now (?P<unit>[\w.@-]+)", "sudo systemctl enable --now {unit}"),
    (r"sudo usermod -aG (?P<group>\S+) (?P<user>\S+)", "sudo gpasswd -d {user} {group}"),
    (r"\bln -sf? (?!\S*\$\()\S+ (?P<link>\S+)", "rm {link}"),
    (r"mokutil --import (?P<key>[^\s;)]+)", "sudo mokutil --delete {key}"),
    (r"sudo nvidia-smi(?P<gpu> -i \S+)? -pm 1", "sudo nvidia-smi{gpu} -pm 0"),
    (r"sudo nvidia-smi(?P<gpu> -i \S+)? -lgc \S+", "sudo nvidia-smi{gpu} -rgc"),
    (r"sudo apt remove (?P<names>[a-z][\w .+-]*)$", "sudo apt install {names}"),
    (r"sudo pacman -Rns (?P<names>[a-z][\w .+-]*)", "sudo pacman -S {names}"),
    (r"^conda remove(?P<where> -p \S+)? (?P<names>[a-z][\w .-]*)$", "conda install{where} {names}"),
    (r"sudo systemctl set-property (?P<unit>\S+) ", "sudo systemctl revert {unit}"),
    (r"sudo add-apt-repository -y (?P<ppa>\S+)", "sudo add-apt-repository --remove -y {ppa}"),
    (r"sudo mv (?P<one>\S+) (?P<other>\S+)", "sudo mv {other} {one}"),
)
WORDS = (
    (
        r"conda install(?P<where> -p \S+)?",
        "conda list{where} --revisions # then conda install{where} --revision NUMBER, with the previous revision",
    ),
    (
        r"nvidia-ctk runtime configure --runtime=(?P<engine>docker|containerd)",
        "remove the runtime nvidia from {engine}'s configuration",
    ),
    (r"nvidia-ctk config .*--in-place", "set the old value in /etc/nvidia-container-runtime/config.toml"),
    (r"(?:tee -a|>>) (?P<file>[~/]\S+)", "remove the line from {file}"),
    (r"sysctl -w (?P<name>[\w.]+)=", "sudo sysctl -w {name}=OLD, with the value that sysctl {name} shows now"),
)
_INITRAMFS = re.compile(rf"{re.escape(NEW_INITRAMFS)}|sudo (?:update-initramfs -u|update-grub|dracut --force|mkinitcpio -P)")


def known(fix: Fix, there: Container[str] = ()) -> Fix:
    """The fix with its undo; "" if it changes nothing or the undo is unknown. there: packages that were installed before."""
    return fix if fix.undo else replace(fix, undo=of(fix.command, there))


def of(command: str, there: Container[str] = ()) -> str:
    found = [*_matches(INSTALLS, command, there), *_matches(CHANGES, command, there)]
    if not found:
        return "; ".join(_matches(WORDS, command, there))
    again = _INITRAMFS.search(command) if found else None
    return " && ".join(dict.fromkeys([*reversed(found), *([again[0]] if again else [])]))


def _matches(rules: tuple[tuple[str, str], ...], command: str, there: Container[str]) -> list[str]:
    found = []
    for pattern, undo in rules:
        for match in re.finditer(pattern, command):
            groups = {
                name: _bare(value or "", there) if name == "packages" else value or ""
                for name, value in match.groupdict().items()
            }
            line = undo.format(**groups)
            if line.split()[-1] not in ("remove", "-Rns") and line not in found:
                found.append(line)
    return found


def _bare(packages: str, there: Container[str]) -> str:
    """The names without options and versions, and without packages that may stay."""
    words = re.findall(r"(?:\$\([^)]*\)|\S)+", packages)
    names = [re.sub(r"[=<>].*$", "", word.strip("'\"")) for word in words if not word.startswith("-")]
    return " ".join(name for name in names if name not in there and not HARMLESS.fullmatch(name))
