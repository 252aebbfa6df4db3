"""Whether SELinux is what keeps a container from a device node that everybody may open. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.containers.access import DOCKER, PODMAN, SELINUX, SMI
from gpudoctor.model import Finding, Fix, Problem

DENIAL = re.compile(
    r"""
    avc:\ +denied\ +\{[^}]*\}
    .*?\bname="(?P<node>nvidia[\w-]*)"
    .*?\bscontext=\S*?:(?P<label>\w+):s0
    """,
    re.VERBOSE,
)
WITHOUT_LABELS = Fix(
    PODMAN.title,
    DOCKER.command.replace("docker run", "docker run --security-opt label=disable"),
    verify=SMI,
)


def selinux(facts: Facts, engine: str, words: str, evidence: Mapping[str, object]) -> Finding | None:
    """The policy of this container's host: its log says so, or it enforces and does not let containers use devices."""
    problem = for_engine(engine)
    if denial := denial_of(facts):
        told = f"{words}; the kernel log: SELinux denied {denial['node']} to {denial['label']}"
        return problem.found(told, {**evidence, "label": denial["label"]})
    if known(lambda: facts.system.selinux_enforcing):
        return problem.found(words, evidence)
    if known(lambda: facts.host.system.selinux_enforcing and not facts.host.engines.containers_may_use_devices):
        told = f"{words}; on the host SELinux enforces, and container_use_devices is off"
        return problem.found(told, {**evidence, "container_use_devices": "off"})
    return None


def for_engine(engine: str) -> Problem:
    """A pod has no such option: there only the host's switch helps."""
    of_podman, of_host = SELINUX.fixes
    of_engine = {"docker": (WITHOUT_LABELS,), "kubernetes": (), "enroot": ()}.get(engine, (of_podman,))
    return replace(SELINUX, fixes=(*of_engine, of_host))


def denial_of(facts: Facts) -> re.Match[str] | None:
    """The last denial of a node of the driver, in the log of the host or in what of it is seen from inside."""
    logs = (lambda: facts.host.kernel_log.lines, lambda: facts.kernel_log.lines)
    lines = [line.text for read in logs for line in known(read, ())]
    return next((found for line in reversed(lines) if (found := DENIAL.search(line))), None)
