"""NVSwitch systems in a text: Fabric Manager's release and the state of the fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.model import Confidence, Finding

WHY_NOT = ("fabricmanager-ib-umad-missing", "nvlink-subnet-manager-missing", "fabricmanager-version-mismatch")
_RELEASE = re.compile(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)")
_PACKAGE = re.compile(r"nvidia-fabric-?manager(?:-\d+)?")


def another_fabric_manager(facts: Facts) -> Iterator[Finding]:
    """Fabric Manager starts only with the driver of the same release."""
    driver = known(lambda: facts.driver.module_version) or known(lambda: facts.nvml.driver_version)
    packages = [one for one in known(lambda: facts.driver.packages, ()) if _PACKAGE.fullmatch(one.name)]
    releases = [match[1] for one in packages if one.state == "installed" and (match := _RELEASE.match(one.version))]
    if driver and releases and driver not in releases:
        words = f"Fabric Manager {releases[0]} is installed, and driver {driver} is loaded"
        evidence = {"fabric_manager": releases[0], "driver": driver, "branch": driver.partition(".")[0]}
        yield facts.problems["fabricmanager-version-mismatch"].found(words, evidence, confidence=Confidence.LIKELY)


def waiting_fabric(facts: Facts) -> Iterator[Finding]:
    """The GPUs wait for Fabric Manager, and the text does not show its state."""
    if (
        facts.shown.fabric in ("in progress", "not started")
        and known(lambda: facts.services.unit("nvidia-fabricmanager")) is None
    ):
        words = f"the fabric's state is {facts.shown.fabric!r}: Fabric Manager has not registered the GPU"
        problem = facts.problems["fabricmanager-not-running-802"]
        found = problem.found(words, {"fabric": facts.shown.fabric}, confidence=Confidence.LIKELY)
        yield replace(found, causes=WHY_NOT)


RULES = (another_fabric_manager, waiting_fabric)
