"""The docker command talks to the daemon of this machine.

What it means
Containers run where the daemon runs. A context or DOCKER_HOST can point the docker command to another machine, or to a daemon
in a virtual machine on this one. Containers then use the GPU, driver and toolkit of that machine.

How it is judged
DOCKER_HOST takes precedence over DOCKER_CONTEXT, and that over what `docker context use` has set. A context that does not exist
is a fault. An address on another machine is a warning if this machine has a GPU. If no daemon answers there, or if it denies
access, the check is skipped.

Known exceptions
An address of this machine (tcp://localhost) does not count as another one. A daemon in Docker Desktop's virtual machine is
judged by docker-daemon. If this machine has no GPU, a daemon on another machine is expected.

References
https://docs.docker.com/engine/manage-resources/contexts/
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.containers.daemon import CONTEXT_MISSING, ELSEWHERE, context_missing, elsewhere, way
from gpudoctor.model import Check, Finding, Skip


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if not facts.engines.docker_installed:
        raise Skip("Docker is not installed")
    finding = context_missing(facts) or elsewhere(facts)
    if finding:
        yield finding
        return
    daemon = facts.engines.docker
    if daemon is None or not daemon.reachable:
        chosen = facts.engines.docker_host or facts.engines.context
        raise Skip(f"no Docker daemon answers ({way(facts)})", Skip.NO_ANSWER if chosen else Skip.NOT_APPLICABLE)


def summary(facts: Facts) -> str:
    return way(facts)


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(CONTEXT_MISSING, ELSEWHERE),
    tags=("docker",),
)
