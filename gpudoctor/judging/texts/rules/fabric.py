"""NVSwitch systems in a text: Fabric Manager's release and the state of the fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding

WHY_NOT = ("fabricmanager-ib-umad-missing", "nvlink-subnet-manager-missing", "fabricmanager-version-mismatch")
_RELEASE = re.compile(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)")
_PACKAGE = re.compile(r"nvidia-fabric-?manager(?:-\d+)?")
_REFUSED = re.compile(
    r"""
    ^\s*Fabric\s*\n
    \s+State\s+:\ Completed\s*\n
    \s+Status\s+:\ (?!Success|N/A|NVML_SUCCESS)(?P<status>\S[^\n]*?)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)


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


def refused_by_fabric(facts: Facts) -> Iterator[Finding]:
    """The registration ended with an error: the GPU has no NVLink to the others."""
    refused = next((match for text in passages(facts) if (match := _REFUSED.search(text))), None)
    if refused:
        status = refused["status"]
        words = f"the registration with the NVLink fabric ended with {status!r}"
        yield facts.problems["nvlink-fabric-unhealthy"].found(words, {"status": status}, confidence=Confidence.LIKELY)


RULES = (another_fabric_manager, waiting_fabric, refused_by_fabric)
