"""The CDI specifications for the GPU match the current driver and devices, and the engines can read them.

What it means
A CDI specification is a file that lists, for Podman, Docker and Kubernetes, which device nodes and library files a container
gets. It is written once, with full paths. After a driver upgrade or a change of GPU it has to be regenerated.

How it is judged
For each specification of nvidia.com/gpu, the driver version in its library names is compared with the installed libraries, and
its device nodes (/dev/nvidia0 and so on) with those in /dev. Its CDI version must be one that Podman, and a Docker that reads
it, support. Two specifications in one folder must not conflict. If Podman is the only engine, a specification must exist.

Known exceptions
A file in /var/run/cdi takes precedence over one in /etc/cdi, so an outdated file in /etc/cdi does no harm. Under WSL2 the
specification names /dev/dxg and no version.

References
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from gpudoctor.facts import Facts
from gpudoctor.judging.containers.cdi import (
    CONFLICT,
    NONE,
    STALE,
    TOO_NEW,
    effective,
    in_conflict,
    judge_one,
    none_written,
    unreadable,
)
from gpudoctor.model import Check, Finding, Skip


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if facts.system.wsl or facts.driver.module_version is None:
        raise Skip("no NVIDIA kernel module is loaded")
    specifications = effective(facts.engines.cdi_specs)
    if not specifications:
        missing = none_written(facts)
        if not missing:
            raise Skip("no CDI specification for a GPU was found")
        yield missing
    found = [judge_one(facts, path, text) for path, text in specifications.items()]
    yield from filter(None, [*found, in_conflict(specifications), *too_new(facts, specifications)])


def too_new(facts: Facts, specifications: Mapping[str, str]) -> Iterator[Finding | None]:
    """For Podman, and for a Docker that reads specifications. An engine whose version cannot be read is not judged."""
    with contextlib.suppress(Skip):
        if facts.engines.podman_installed:
            yield unreadable(specifications, "podman", facts.engines.podman_version or ())
    with contextlib.suppress(Skip):
        daemon = facts.engines.docker
        if daemon and daemon.cdi_spec_dirs and not facts.engines.daemon_is_elsewhere:
            yield unreadable(specifications, "docker", daemon.numbers)


def summary(facts: Facts) -> str:
    return f"{', '.join(effective(facts.engines.cdi_specs))} matches driver {facts.driver.library_version}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(STALE, NONE, TOO_NEW, CONFLICT),
    tags=("docker", "kubernetes"),
)
