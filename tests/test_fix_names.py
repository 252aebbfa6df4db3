"""Every package that a recipe names for Ubuntu and Debian is one that their indices had (package_names.yaml)."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from each import each

from gpudoctor.fixes import FixContext, fitting
from gpudoctor.fixes.distribution import Distribution
from gpudoctor.model import Fix

pytestmark = pytest.mark.slow

UBUNTU, DEBIAN = ("22.04", "24.04", "25.10", "26.04"), ("12", "13")
KERNELS = {
    "22.04": ("5.15.0-204-generic", "6.8.0-149-generic", "6.8.0-1070-aws", "6.8.0-1073-azure", "5.15.0-1116-nvidia"),
    "24.04": (
        "6.8.0-151-generic",
        "7.0.0-43-generic",
        "7.0.0-1018-aws",
        "6.8.0-1074-gcp",
        "6.17.0-1033-oem",
        "7.0.0-1025-nvidia",
    ),
    "25.10": ("6.17.0-41-generic", "6.17.0-1019-aws"),
    "26.04": ("7.0.0-44-generic", "7.0.0-1018-aws", "7.0.0-1025-nvidia"),
    "12": ("6.1.0-50-amd64", "6.1.0-50-cloud-amd64", "6.12.95+deb12-amd64"),
    "13": ("6.12.107+deb13-amd64", "7.3.4+deb13-amd64"),
}
GENERATIONS = ("Kepler", "Pascal", "Ampere", "Hopper", "Blackwell")
BRANCHES = (470, 535, 550, 570, 575, 580, 590, 595, 610, 615)
OLDER = ("", "580.95.05", "595.71.05")
RECIPES = (*(f"driver {branch}" for branch in BRANCHES), "module", "libraries", "fabric-manager", "sign", "one-source")
CHECKED = re.compile(r"(lib)?nvidia-|linux-(modules-nvidia|image|headers)-|libcuda1|dkms")


@functools.cache
def existing(release: str) -> frozenset[str]:
    """The names, with those for the running kernel as $(uname -r)."""
    table: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "package_names.yaml").read_text())[release]
    names = {"dkms", "linux-headers-$(uname -r)", *table.get("packages", ())}
    names |= {f"{kind}-{of}" for kind in ("nvidia-driver", "nvidia-dkms") for of in table.get("drivers", ())}
    names |= {f"{kind}-{of}" for kind in ("libnvidia-compute", "nvidia-utils") for of in table.get("libraries", ())}
    names |= {f"{kind}-{of}" for kind in ("nvidia-fabricmanager", "libnvidia-nscq") for of in table.get("fabric", ())}
    names |= {f"{kind}-{of}" for kind in ("linux-image", "linux-headers") for of in table.get("kernels", ())}
    for row in table.get("modules", ()):
        names |= {f"linux-modules-nvidia-{of}-{kernel}" for of in row["of"] for kernel in (*row["kernels"], "$(uname -r)")}
    return frozenset(names)


def missing(release: str, command: str) -> list[str]:
    """Of each part of a line, what is nowhere; of ways that stand for each other, if no way is whole."""
    found = []
    for part in command.split(" && "):
        ways = [names for way in part.split(" || ") if (names := installed(way)) is not None]
        lacking = [[name for name in names if name not in existing(release)] for names in ways]
        if lacking and all(lacking):
            found += lacking[-1]
    return found


def installed(way: str) -> list[str] | None:
    match = re.search(r"sudo apt install (?!--reinstall|\./)(.*)", way)
    if not match:
        return None
    words = re.findall(r"(?:\$\([^)]*\)|[^\s()'])+", match[1])
    return [re.split(r"[=/]", word)[0] for word in words if CHECKED.match(word)]


def hosts(release: str) -> Iterator[Distribution]:
    distribution = "ubuntu" if release in UBUNTU else "debian"
    for kernel, generation, is_server, driver in itertools.product(KERNELS[release], GENERATIONS, (False, True), OLDER):
        fits = not driver or (generation != "Kepler" and (generation != "Pascal" or driver < "590"))
        if fits and not (driver and distribution == "debian"):
            source = "distribution" if driver else ""
            is_server = is_server and "oem" not in kernel
            yield Distribution(
                distribution,
                release,
                "debian",
                "x86_64",
                kernel,
                "host",
                {},
                source,
                driver,
                frozenset({generation}),
                None,
                is_server,
            )


@each("release", [*UBUNTU, *DEBIAN])
def test_what_is_named_is_there(release: str) -> None:
    lines = 0
    for host in hosts(release):
        for recipe in RECIPES:
            for fix in fitting((Fix("Do it", recipe=recipe),), FixContext(("debian", "host"), host), {}):
                if "developer.download.nvidia.com" not in fix.command:
                    lines += 1
                    assert missing(release, fix.command) == [], (host, fix.command)
    assert lines > 50


def test_a_name_that_is_nowhere_is_found() -> None:
    assert missing("24.04", "sudo apt update && sudo apt install nvidia-driver-570") == ["nvidia-driver-570"]
    assert missing("24.04", "(sudo apt install nvidia-driver-570 || sudo apt install dkms) && x") == []
