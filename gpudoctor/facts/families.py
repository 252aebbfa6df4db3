"""The families of distributions that a text shows without naming one: by its kernel's release and its package manager."""

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


def shown_by(kernel: str, managers: Iterable[str]) -> tuple[str, ...]:
    """Empty if neither shows it. kernel: "" for that of a container, which is its host's.

    >>> shown_by("6.8.0-45-generic", ()), shown_by("", ("rpm",))
    (('debian',), ('rhel', 'suse'))
    """
    of_kernel = next(((family,) for family, pattern in _OF_KERNEL if re.search(pattern, kernel)), ())
    return of_kernel or next((_OF_MANAGER[manager] for manager in managers if manager in _OF_MANAGER), ())
