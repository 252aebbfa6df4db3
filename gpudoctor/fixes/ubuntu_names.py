"""The contents of Ubuntu's repositories: driver branches, and names of kernels with prebuilt modules.

Read 2026-11-21 from the package indices of jammy, noble, questing and resolute with -updates, and of focal as it ended.
"""

from __future__ import annotations

from gpudoctor.fixes.distribution import Distribution

# The packages of all other branches only depend on the next one of these.
BRANCHES = {
    "20.04": (470, 535, 570),
    "22.04": (470, 580, 595, 615),
    "24.04": (470, 580, 595, 615),
    "25.10": (580, 595),
    "26.04": (580, 595, 615),
}
LATER = (580, 595, 615)
FIRST_KERNEL = {"20.04": "5.4", "22.04": "5.15", "24.04": "6.8", "25.10": "6.17", "26.04": "7.0"}
LONG_TERM = ("20.04", "22.04", "24.04", "26.04")
SECOND_KERNELS = ("generic", "lowlatency", "nvidia", "gke")  # flavours whose later kernels are called hwe
READY = (*SECOND_KERNELS, "aws", "azure", "azure-fde", "gcp", "ibm", "oracle", "oem", "vmware")


def package_branch(host: Distribution, branch: int) -> int | None:
    """The branch whose packages are installed: an ended branch is replaced by the next; None if none replaces it.

    >>> package_branch(Distribution("ubuntu", "24.04"), 570), package_branch(Distribution("ubuntu", "26.04"), 470)
    (580, None)
    """
    if branch <= 470 and 470 not in BRANCHES.get(host.version, LATER):
        return None
    return next((number for number in BRANCHES.get(host.version, LATER) if number >= branch), None)


def is_maintained(host: Distribution) -> bool:
    """Whether the installed branch still has its own packages."""
    return bool(host.branch) and package_branch(host, host.branch or 0) == host.branch


def kernel_name(host: Distribution) -> str:
    """The name in the packages that follow this kernel's updates; "" for a kernel without prebuilt modules.

    >>> kernel_name(Distribution("ubuntu", "24.04", kernel="6.8.0-60-generic"))
    'generic'
    >>> kernel_name(Distribution("ubuntu", "24.04", kernel="6.14.0-29-generic"))
    'generic-hwe-24.04'
    >>> kernel_name(Distribution("ubuntu", "24.04", kernel="6.17.0-1020-aws"))
    'aws'
    """
    number, _, rest = host.kernel.partition("-")
    flavour = rest.partition("-")[2]
    if flavour not in READY:
        return ""
    if flavour == "oem":
        return f"oem-{host.version}"
    is_first = number.startswith(FIRST_KERNEL.get(host.version, number) + ".")
    later = flavour in SECOND_KERNELS and host.version in LONG_TERM and not is_first
    return f"{flavour}-hwe-{host.version}" if later else flavour
