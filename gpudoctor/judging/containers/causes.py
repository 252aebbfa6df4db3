"""Possible causes of an engine's message: the links of the chain on this host, each checked for a fault. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpudoctor.facts import Facts
from gpudoctor.facts.container_start import Start
from gpudoctor.facts.docker import Docker
from gpudoctor.judging.containers import cdi, runtime, toolkit
from gpudoctor.judging.containers import daemon as daemons
from gpudoctor.judging.containers.access import HOST_DRIVER
from gpudoctor.model import Cause, Confidence, Finding, Skip, Status, Unavailable

# If one of these fails on the host, no container can have a GPU; the first that fails is the cause.
DRIVER_CHECKS = (
    *("wsl-driver", "wsl-gpu", "gpu-on-bus", "module-flavour", "kernel-module", "driver-version", "adapter-init"),
    *("device-nodes", "nvml"),
)


@dataclass(frozen=True)
class Case:
    """A container that did not start, and the host on which its engine was called. names: devices that the message names."""

    facts: Facts
    start: Start
    names: tuple[str, ...] = ()

    @property
    def is_here(self) -> bool:
        """Whether the engine runs on the examined host, not on another machine and not outside of this container."""
        try:
            return self.facts.container.engine is None and (self.start.is_podman or not self.facts.engines.daemon_is_elsewhere)
        except Skip:
            return False

    @property
    def daemon(self) -> Docker:
        """Docker's daemon, if its toolkit is on this host."""
        daemon = daemons.running(self.facts)
        if self.start.is_podman or daemon.is_podman:
            raise Skip("the engine is Podman")
        if daemon.is_desktop:
            raise Skip("Docker Desktop includes its own toolkit")
        return daemon


def driver(case: Case) -> Finding | None:
    """The fault that the driver's own checks found, if any; the container's failure is its effect."""
    found = (finding for name in DRIVER_CHECKS for finding in case.facts.found.get(name, ()))
    fault = next((finding for finding in found if finding.problem.status is Status.FAIL and not finding.partial), None)
    return replace(HOST_DRIVER.found(fault.message), because=fault.problem.id) if fault else None


# Faults of the driver or a GPU that only messages show.
BY_WORDS = (
    *("gpu-lost", "gpu-answers-with-errors", "gpu-missing-from-driver", "module-of-another-kernel", "gpu-needs-reset"),
    *("xid-79-fallen-off-bus", "xid-119-gsp-rpc-timeout", "xid-120-gsp-error", "xid-62-pmu-halt"),
)


FAULTS_OF_DRIVER = (*DRIVER_CHECKS, *BY_WORDS)


def shut_off(case: Case) -> Finding | None:
    """A daemon that cannot reach the GPU: in Docker Desktop's virtual machine, or a snap."""
    if case.start.is_podman:
        raise Skip("the engine is Podman")
    finding = daemons.before_asking(case.facts)
    if finding and finding.problem is not daemons.INVALID:
        return finding
    daemon = case.facts.engines.docker
    return next(daemons.desktop(case.facts, daemon), None) if daemon and daemon.is_desktop else None


def invalid_json(case: Case) -> Finding | None:
    if case.start.is_podman:
        raise Skip("the engine is Podman")
    finding = daemons.before_asking(case.facts)
    return finding if finding and finding.problem is daemons.INVALID else None


def dead(case: Case) -> Finding | None:
    return daemons.not_running(case.facts, case.facts.engines.docker)


def old_engine(case: Case) -> Finding | None:
    first = cdi.FIRST_WITH_CDI["podman" if case.start.is_podman else "docker"]
    if not case.start.numbers or case.start.numbers >= first:
        return None
    return cdi.OLD_ENGINE.found(f"{case.start.name} does not support CDI devices", {"engine": case.start.name})


def specifications(case: Case) -> dict[str, str]:
    return cdi.effective(case.facts.engines.cdi_specs)


def nothing_specified(case: Case) -> Finding | None:
    return None if specifications(case) else replace(cdi.no_specification(), confidence=Confidence.CONFIRMED)


def unreadable(case: Case) -> Finding | None:
    return cdi.unreadable(specifications(case), "podman" if case.start.is_podman else "docker", case.start.numbers)


def conflict(case: Case) -> Finding | None:
    return cdi.in_conflict(specifications(case))


def stale(case: Case) -> Finding | None:
    found = (cdi.judge_one(case.facts, path, text) for path, text in specifications(case).items())
    return next(filter(None, found), None)


def misnamed(case: Case) -> Finding | None:
    """The requested device is not in the specifications, although they are up to date."""
    known = {name for text in specifications(case).values() for name in cdi.names_of(text)}
    asked = [name.partition("=")[2] for name in case.names if name.startswith("nvidia.com/gpu=")]
    unknown = [name for name in asked if name not in known]
    if not unknown or not known:
        return None
    words = f"nvidia.com/gpu={', '.join(unknown)} does not exist; the names are {', '.join(sorted(known))}"
    return cdi.UNKNOWN_DEVICE.found(words, {"asked": unknown, "names": sorted(known)})


def rules_refused(case: Case) -> Finding | None:
    """If Docker runs as root, the denial comes from outside, not from rootless mode."""
    if case.daemon.rootless:
        return None
    words = "Docker runs as root here"
    return toolkit.RULES_REFUSED.found(words, {"rootless": False}, confidence=Confidence.LIKELY)


def _of_daemon(look: Callable[[Facts, Docker], Finding | None]) -> Callable[[Case], Finding | None]:
    return lambda case: look(case.facts, case.daemon)


def _hook_missing(case: Case) -> Finding | None:
    return runtime.hook_missing(case.facts) if case.daemon else None


def _hook_late(case: Case) -> Finding | None:
    if case.facts.engines.toolkit_newer_than_daemon is None:
        raise Unavailable("whether the hook existed when the daemon started is unknown")
    return runtime.hook_came_late(case.facts)


_LINKS = (
    Cause(daemons.CONTEXT_MISSING, lambda case: daemons.context_missing(case.facts)),
    Cause(daemons.DESKTOP_LINUX, shut_off),
    Cause(daemons.SNAP, shut_off),
    Cause(daemons.INVALID, invalid_json),
    Cause(HOST_DRIVER, driver),
    Cause(runtime.PROGRAM_MISSING, _of_daemon(runtime.program_missing)),
    Cause(runtime.MISSING, _of_daemon(runtime.toolkit_missing)),
    Cause(runtime.NOT_CONFIGURED, _of_daemon(runtime.not_known)),
    Cause(toolkit.WRONG_ROOT, lambda case: toolkit.wrong_root(case.facts)),
    Cause(cdi.TOO_NEW, unreadable),
    Cause(cdi.CONFLICT, conflict),
    Cause(cdi.STALE, stale),
)
_OF_MESSAGES = (
    Cause(daemons.FAILED, dead),
    Cause(runtime.NO_HOOK, _hook_missing),
    Cause(runtime.NEWER, _hook_late),
    Cause(cdi.OLD_ENGINE, old_engine),
    Cause(cdi.OFF, lambda case: cdi.switched_off(case.daemon)),
    Cause(cdi.NONE, nothing_specified),
    Cause(cdi.UNKNOWN_DEVICE, misnamed),
    Cause(toolkit.RULES_REFUSED, rules_refused),
)
CAUSES = {cause.problem.id: cause for cause in (*_LINKS, *_OF_MESSAGES)}
"""The causes that messages of engines name: id -> how to check for it."""

CHAIN = tuple(cause.problem.id for cause in _LINKS)
"""Each link depends on those before it; the other causes are checked for certain messages only."""
PODMAN_CHAIN = (HOST_DRIVER.id, cdi.TOO_NEW.id, cdi.CONFLICT.id, cdi.STALE.id)  # Podman has no daemon and no choice of runtime


def cdi_names(message: str) -> tuple[str, ...]:
    """The devices that a message names: ("nvidia.com/gpu=0", "nvidia.com/gpu=7")."""
    return tuple(re.findall(r"[\w.]+\.com/\w+=[\w.:-]+", message))
