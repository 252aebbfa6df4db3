"""Driver packages of two releases: the module from one source, the libraries from another."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpudoctor.facts import Facts
from gpudoctor.facts.driver import OsPackage
from gpudoctor.facts.known import known
from gpudoctor.model import Action, Finding, Fix, Problem, Skip

PURGE = "apt-get purge -y '?installed?name(^libnvidia-)' '?installed?name(^nvidia-driver-)' '?installed?name(^nvidia-utils-)'"
FOR_LXC = Fix(
    "Remove the driver from this container, then install the libraries of the host's release from its .run file",
    f"if command -v nvidia-uninstall; then nvidia-uninstall --silent; elif command -v apt-get; then {PURGE}; fi; "
    "sh NVIDIA-Linux-*-<driver>.run --no-kernel-module",
    risk="disruptive",
    verify="nvidia-smi",
)
MODULE = re.compile(
    r"""
    # Debian, Ubuntu
    nvidia-dkms-\d
    | nvidia-(current-)?kernel-(dkms|source|open)
    | nvidia-open-kernel-dkms
    | linux-(modules|objects)-nvidia-\d
    # RHEL, Fedora, SUSE
    | (kmod|akmod|dkms)-nvidia
    | nvidia(-open)?(-driver)?-G\d+(-signed)?(-cuda)?-kmp
    | nvidia(-open)?-driver-G\d+
    # Arch
    | nvidia(-open)?(-lts|-dkms)?$
    | nvidia-\d+xx-dkms
    """,
    re.VERBOSE,
)
LIBRARIES = re.compile(
    r"""
    # Debian, Ubuntu
    libnvidia-(compute|ml|gl|cfg1)
    | libcuda1
    # RHEL, Fedora, SUSE
    | nvidia-driver(-cuda)?-libs
    | nvidia-driver-cuda$
    | nvidia-compute-(utils-)?G\d+
    | xorg-x11-drv-nvidia(-\d+xx)?(-cuda)?(-libs)?$
    # Arch
    | nvidia(-\d+xx)?-utils
    """,
    re.VERBOSE,
)
# Packages of modules that Canonical compiles have the kernel's version; their name contains the branch.
READY_MADE = re.compile(r"linux-(?:modules|objects)-nvidia-(\d+)")

MIXED_PACKAGES = Problem(
    id="driver-packages-of-two-releases",
    title="The driver's module and libraries are packages of two releases",
    why="Two package sources are mixed, usually the distribution's and NVIDIA's repository: one provides the kernel module, the "
    "other the libraries. Both are installed correctly, so neither a reboot nor a rebuild makes the versions match.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Remove all driver packages, install one release from one source, then reboot",
            risk="disruptive",
            verify="nvidia-smi",
            recipe="one-source <newest>",
        ),
        Fix("To prevent it: allow only one repository to provide driver packages"),
    ),
    references=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/version-locking.html",),
)


FINISH = Fix(
    "Let dpkg finish the interrupted installation, then load the module",
    "sudo dpkg --configure -a && sudo apt install --fix-broken && sudo modprobe nvidia",
    verify="nvidia-smi",
    on=("debian",),
    kind="install",
    needs=("root",),
)


def unfinished(facts: Facts) -> list[str]:
    """The driver packages that dpkg has unpacked but not configured."""
    packages = known(lambda: facts.driver.packages, ())
    driver = (package for package in packages if "nvidia" in package.name and package.state != "installed")
    return [f"{package.name} is {package.state}" for package in driver]


def has_builder(facts: Facts) -> bool:
    """Whether DKMS or akmods compiles the module here; otherwise its package contains it prebuilt for one kernel."""
    try:
        names = [package.name for package in facts.driver.packages]
    except Skip:
        return True
    comes_built = any(name.startswith("kmod-nvidia") and "dkms" not in name for name in names)
    has_dkms = known(lambda: facts.driver.has_dkms, False)  # a text may not show it
    return not comes_built or has_dkms or any(name.startswith(("akmod", "dkms")) for name in names)


def mixed_packages(facts: Facts, words: str, evidence: dict[str, object]) -> Finding | None:
    """Report if the module's package has the loaded release and the libraries' package the other release."""
    loaded = facts.driver.module_version or ""
    others = [release for release in facts.driver.library_versions if release != loaded]
    installed = [package for package in facts.driver.packages if package.state == "installed"]
    libraries = [package for package in installed if LIBRARIES.match(package.name) and _release(package) in others]
    of_modules = [package for package in installed if MODULE.match(package.name)]
    modules = [package for package in of_modules if _release(package) == loaded or _is_ready_made(package, loaded, others)]
    if not (modules and libraries) or any(_release(package) in others for package in of_modules):
        return None
    words += f"; both come from packages: {_named(modules)} and {_named(libraries)}"
    newest = max(int(release.split(".")[0]) for release in (loaded, *others))
    found = {"module_packages": _names(modules), "library_packages": _names(libraries), "newest": newest}
    return MIXED_PACKAGES.found(words, {**evidence, **found})


def _is_ready_made(package: OsPackage, loaded: str, others: Iterable[str]) -> bool:
    """Whether a prebuilt module has the loaded branch and no library has it: within a branch it may only lag behind."""
    branch = READY_MADE.match(package.name)
    return (
        branch is not None and loaded.startswith(f"{branch[1]}.") and not any(one.startswith(f"{branch[1]}.") for one in others)
    )


def _release(package: OsPackage) -> str:
    """570.158.01 for 570.158.01-0ubuntu0.24.04.1, 3:570.158.01-1.el9 and 570.158.01_k6.4.0_150600.21-1.1."""
    match = re.match(r"(?:\d+:)?(\d+\.\d+(?:\.\d+)?)", package.version)
    return match[1] if match else ""


def _named(packages: Iterable[OsPackage]) -> str:
    first = next(iter(packages))
    return f"{first.name} {_release(first)}"


def _names(packages: Iterable[OsPackage]) -> list[str]:
    return [f"{package.name} {package.version}" for package in packages]
