"""Releases of the driver in a text: the loaded module's against those of the packages, the libraries and the module on disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.driver.driver_packages import FOR_LXC
from gpudoctor.judging.texts.rules.driver import OF_DRIVER, said
from gpudoctor.judging.texts.rules.said import complains, is_lxc, passages
from gpudoctor.model import Confidence, Finding, Fix

_RELEASE = re.compile(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)")
_NVML_LIBRARY = re.compile(r"^NVML library version: (\d{3}\.\d+(?:\.\d+)?)\s*$", re.MULTILINE)
_OF_LIBRARIES = re.compile(
    r"libnvidia-(?: ml | compute | gl | cfg ) | nvidia-(?: utils | smi | \d{3}$ ) | libcuda1 | cuda-drivers", re.VERBOSE
)
_REBOOTED = re.compile(r"\b(?:re-?boot(?:ed|ing)|after (?:a|several|the) (?:cold )?reboots?)\b", re.IGNORECASE)
OTHER_IN_LXC = "The container's driver libraries are of another release than its host"
WHY_IN_LXC = (
    "A system container (LXC, Incus) uses its host's kernel module with its own libraries, and both must be of the same "
    "release. After each upgrade on the host the container needs the same one."
)
ON_NIXOS = (
    Fix(
        "Find the copy in the user's or root's profile",
        "nix profile list | grep nvidia; nix-env -q | grep nvidia; sudo nix-env -q | grep nvidia",
        kind="read",
        needs=("root",),
    ),
    Fix(
        "Remove it from that profile, so that the system's own copy is found",
        "nix profile remove nvidia-x11 || nix-env -e nvidia-x11",
        verify="nvidia-smi",
        kind="set",
    ),
)


def another_release(facts: Facts) -> Iterator[Finding]:
    """The packages are of another release than the loaded module."""
    loaded = known(lambda: facts.driver.module_version)
    if is_lxc(facts):
        yield from _in_lxc(facts, loaded or "")
        return
    releases, on_disk = _installed(facts), known(lambda: facts.driver.modinfo.get("version"))
    if on_disk and not releases:
        releases = {on_disk: "the module on disk"}
    if loaded and releases and not {loaded, on_disk} & {*releases} and facts.shown.is_in_container:
        release, name = next(iter(releases.items()))
        words = f"{name} {release} is installed in the container, and the host's kernel module is {loaded}"
        evidence = {"module": loaded, "libraries": sorted(releases)}
        yield facts.problems["driver-libraries-in-image"].found(words, evidence, confidence=Confidence.LIKELY)
    elif loaded and releases and loaded not in releases and not facts.system.wsl:
        yield _not_loaded(facts, loaded, on_disk, releases)


def _installed(facts: Facts) -> dict[str, str]:
    """Release -> a package of it."""
    packages = [one for one in known(lambda: facts.driver.packages, ()) if OF_DRIVER.fullmatch(one.name)]
    return {match[1]: one.name for one in packages if one.state == "installed" and (match := _RELEASE.match(one.version))}


def _not_loaded(facts: Facts, loaded: str, on_disk: str | None, releases: dict[str, str]) -> Finding:
    """A reboot helps only if the module on disk is the new one and no old one is in the initramfs."""
    release, name = next(iter(releases.items()))
    other = f"{name} is {release}" if name.startswith("the ") else f"{name} {release} is installed"
    rebooted = any(_REBOOTED.search(text) for text in passages(facts))
    evidence = {"module": loaded, "libraries": sorted(releases), "module_on_disk": on_disk or release}
    words = f"the loaded kernel module is {loaded}, but {other}"
    if on_disk == loaded:
        id, words = "driver-upgrade-incomplete", f"{words}, and the module on disk is the old one"
    elif rebooted and on_disk:
        id, words = "driver-modules-of-two-releases", f"{words}, also after a reboot: the initramfs holds an old module"
    elif rebooted:
        id, words = "driver-upgrade-incomplete", f"{words}, also after a reboot"
    else:
        id, words = "driver-library-version-mismatch", f"{words}: it is used after a reboot"
    return facts.problems[id].found(words, evidence, confidence=Confidence.LIKELY)


def _in_lxc(facts: Facts, loaded: str) -> Iterator[Finding]:
    """A system container brings its own libraries, and the driver's module is its host's."""
    packages = [one for one in known(lambda: facts.driver.packages, ()) if _OF_LIBRARIES.match(one.name)]
    others = {match[1]: one.name for one in packages if (match := _RELEASE.match(one.version)) and match[1] != loaded}
    named = next((match[1] for text in passages(facts) for match in _NVML_LIBRARY.finditer(text)), "")
    if not others and loaded and named and not f"{loaded}.".startswith(f"{named}."):
        others = {named: "libnvidia-ml"}
    if others and (loaded or said(facts, "Driver/library version mismatch")):
        release, name = next(iter(others.items()))
        words = "the libraries of the container and the kernel module of its host are of different releases"
        words = f"the container has {name} {release}, but the host's kernel module is {loaded}" if loaded else words
        evidence = {"module": loaded, "libraries": sorted(others)}
        problem = replace(facts.problems["driver-libraries-in-image"], title=OTHER_IN_LXC, why=WHY_IN_LXC, fixes=(FOR_LXC,))
        yield problem.found(words, evidence, confidence=Confidence.LIKELY)


def linked_to_another(facts: Facts) -> Iterator[Finding]:
    """libcuda.so.1 leads to a library of another release than the loaded module."""
    loaded = known(lambda: facts.driver.module_version)
    for path, target in facts.shown.library_links.items():
        release = re.search(r"\.so\.(\d{3}\.[\d.]*\d)$", target)
        if loaded and release and release[1] != loaded and not facts.system.wsl and "compat" not in path:
            if _is_upgraded(facts, loaded, release[1]):
                yield _not_loaded(facts, loaded, None, {release[1]: f"the library {path}"})
                return
            words = f"{path} leads to release {release[1]}, but the loaded kernel module is {loaded}"
            evidence = {"module": loaded, "path": path, "target": target}
            yield facts.problems["bare-metal-803-mixed-libcuda"].found(words, evidence, confidence=Confidence.LIKELY)
            return


def _is_upgraded(facts: Facts, loaded: str, installed: str) -> bool:
    """Whether the packages' log shows this upgrade, or DKMS has the release of the libraries in place of the loaded one."""
    built = {one.version for one in known(lambda: facts.driver.dkms, ()) if one.module.startswith("nvidia")}
    logged = re.compile(rf"\b{re.escape(loaded)}\b\S* (?:-> )?(?:\d+:)?{re.escape(installed)}\b")
    return (installed in built and loaded not in built) or any(logged.search(text) for text in passages(facts))


def two_in_the_store(facts: Facts) -> Iterator[Finding]:
    """Paths of NixOS name the driver's release: a program and the module come from two."""
    releases = facts.shown.nix_drivers
    if len(releases) > 1:
        words = f"paths in /nix/store are of the driver releases {', '.join(sorted(releases))}"
        problem = replace(facts.problems["driver-packages-of-two-releases"], fixes=ON_NIXOS)
        yield problem.found(words, {"releases": sorted(releases)}, confidence=Confidence.LIKELY)


_OF_MODULE = re.compile(
    r"""
    akmod-nvidia.*
    | kmod-nvidia.*
    | dkms-nvidia.*
    | nvidia-(?:open-)?dkms.*
    | nvidia-kernel-(?:dkms|open-dkms|source.*)
    """,
    re.VERBOSE,
)
_OF_PROGRAMS = re.compile(
    r"""
    nvidia-(?:driver(?:-libs|-cuda(?:-libs)?)?|utils)(?:-\d{3})?
    | libnvidia-compute-\d{3}
    | xorg-x11-drv-nvidia(?:-libs|-cuda.*)?
    """,
    re.VERBOSE,
)


def packages_of_two(facts: Facts) -> Iterator[Finding]:
    """The packages of the module have another release than those of the libraries, and no GPU is listed."""
    packages = [one for one in known(lambda: facts.driver.packages, ()) if one.state == "installed"]
    module = {match[1]: one.name for one in packages if _OF_MODULE.fullmatch(one.name) and (match := _RELEASE.match(one.version))}
    rest = {match[1]: one.name for one in packages if _OF_PROGRAMS.fullmatch(one.name) and (match := _RELEASE.match(one.version))}
    if module and rest and not set(module) & set(rest) and not known(lambda: facts.nvml.count, 0) and _fails(facts):
        (one, name), (other, library) = next(iter(module.items())), next(iter(rest.items()))
        words = f"{name} is of release {one}, and {library} of {other}"
        evidence = {"module": one, "libraries": sorted(rest), "newest": max(one, other)}
        yield facts.problems["driver-packages-of-two-releases"].found(words, evidence, confidence=Confidence.LIKELY)


def _fails(facts: Facts) -> bool:
    return complains(facts) or any(map(_LOW.search, passages(facts)))


_LOW = re.compile(
    r"""
    low\ resolution
    | nouveau
    | black\ screen
    | only\ works
    | no\ longer
    | after\ (?:the\ |an?\ )?(?:kernel|update|upgrade)
    """,
    re.IGNORECASE | re.VERBOSE,
)


RULES = (packages_of_two, another_release, linked_to_another, two_in_the_store)
