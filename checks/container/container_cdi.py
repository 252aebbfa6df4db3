"""The CDI specifications of the GPU name the driver and the devices that are there now, and the engines can read them.

What it means
A CDI specification is a file that lists, for Podman, Docker and Kubernetes, which device nodes and library files a container
gets. It is written once, with full paths; after a driver upgrade or another GPU it has to be written again.

How it is judged
The driver version in the libraries' names, and the nodes /dev/nvidia0 and so on, of each specification of nvidia.com/gpu
against the installed libraries and the nodes in /dev; its version against those of Podman and of a Docker that reads it; two
in one folder against each other. With Podman alone, a specification has to be there at all.

Known exceptions
A file in /var/run/cdi goes before one in /etc/cdi, so that an old one there does no harm. Under WSL2 the specification names
/dev/dxg and no version.

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
        raise Skip("no NVIDIA driver of this kernel is loaded")
    specifications = effective(facts.engines.cdi_specs)
    if not specifications:
        missing = none_written(facts)
        if not missing:
            raise Skip("there is no CDI specification of a GPU")
        yield missing
    found = [judge_one(facts, path, text) for path, text in specifications.items()]
    yield from filter(None, [*found, in_conflict(specifications), *too_new(facts, specifications)])


def too_new(facts: Facts, specifications: Mapping[str, str]) -> Iterator[Finding | None]:
    """For Podman, and for a Docker that reads specifications. What cannot be asked for its version is not judged."""
    with contextlib.suppress(Skip):
        if facts.engines.podman_installed:
            yield unreadable(specifications, "podman", facts.engines.podman_version or ())
    with contextlib.suppress(Skip):
        daemon = facts.engines.docker
        if daemon and daemon.cdi_spec_dirs and not facts.engines.daemon_is_elsewhere:
            yield unreadable(specifications, "docker", daemon.numbers)


def summary(facts: Facts) -> str:
    return f"{', '.join(effective(facts.engines.cdi_specs))} agrees with driver {facts.driver.library_version}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(STALE, NONE, TOO_NEW, CONFLICT),
)
