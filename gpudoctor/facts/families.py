"""The families of distributions that a text shows: by its kernel's release, its package manager, and its words."""

from __future__ import annotations

import re
from collections.abc import Iterable

# How distributions end the releases of their kernels.
_OF_KERNEL = (
    ("other", r"-0-(?:lts|virt)$"),  # Alpine
    ("suse", r"-default$|\.lp15\d|-1[56]0\d{3}\."),
    (
        "debian",
        r"-(?:generic|lowlatency|oem|pve|cloud-\w+|(?:rt-)?amd64|(?:rt-)?arm64|tegra)(?:$|-)|\+deb\d|\d-(?:aws|azure|gcp|oracle|ibm|gke\w*|kvm"
        r"|nvidia|raspi|intel-iotg|realtime)(?:-64k|-fde)?$",
    ),
    ("rhel", r"\.(?:el\d+(?:uek)?|fc\d+|amzn\d*|azl\d+)(?:$|[._])"),
    ("arch", r"-arch\d|-(?:MANJARO|zen|lts|cachyos|hardened)$"),
)
_OF_MANAGER = {"dpkg": ("debian",), "rpm": ("rhel", "suse"), "pacman": ("arch",)}


# What is typed at a prompt, and names as their owners write them. An image's name, such as ubuntu:22.04, is no host's.
_TYPED = r"(?m)^[^\n]{{0,80}}[$#❯➜%]\ (?:sudo\ )?(?:{})\b"
_OF_WORDS = (
    ("other", r"\bGentoo\b|\bAlpine\ Linux\b|\bVoid\ Linux\b|\bSlackware\b", "emerge|apk|xbps-\\w+|eselect"),
    ("nixos", r"\b[Nn]ixOS\b|/nix/store/", "nixos-rebuild|nix-shell|nixos-version"),
    (
        "debian",
        r"\bUbuntu\ (?:Server\ )?\d\d\.\d\d|\bLinux\ Mint\b|\bPop!_OS\b|\bDebian\ (?:GNU/Linux\ )?\d\d",
        "apt|apt-get|apt-mark|apt-cache|dpkg",
    ),
    ("rhel", r"\b(?:Fedora|Rocky\ Linux|AlmaLinux|RHEL|CentOS)\ (?:Linux\ |Stream\ )?\d", "dnf|yum|akmods|rpm-ostree"),
    ("suse", r"\bopenSUSE\b|\bSLES\b|\bTumbleweed\b", "zypper|transactional-update"),
    ("arch", r"\bArch\ Linux\b|\bManjaro\b|\bEndeavourOS\b|\bCachyOS\b", "pacman|yay|paru"),
)


def named_in(text: str) -> tuple[str, ...]:
    """The only family that is named in a text or whose tools are typed there.

    >>> named_in("kim@ws:~$ sudo apt install nvtop"), named_in("Fedora 42 or Ubuntu 24.04?")
    (('debian',), ())
    """
    typed = [family for family, _, tools in _OF_WORDS if re.search(_TYPED.format(tools), text, re.VERBOSE)]
    found = typed or [family for family, words, _ in _OF_WORDS if re.search(words, text, re.VERBOSE)]
    return tuple(found) if len(found) == 1 else ()


def shown_by(kernel: str, managers: Iterable[str]) -> tuple[str, ...]:
    """Empty if neither shows it. kernel: "" for that of a container, which is its host's.

    >>> shown_by("6.8.0-45-generic", ()), shown_by("", ("rpm",))
    (('debian',), ('rhel', 'suse'))
    """
    of_kernel = next(((family,) for family, pattern in _OF_KERNEL if re.search(pattern, kernel)), ())
    return of_kernel or next((_OF_MANAGER[manager] for manager in managers if manager in _OF_MANAGER), ())
