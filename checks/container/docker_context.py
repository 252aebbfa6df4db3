"""The docker command talks to the daemon of this machine.

What it means
Containers run where the daemon runs. A context, or DOCKER_HOST, can lead the docker command to another machine, or to a daemon
in a virtual machine of this one: GPU, driver and toolkit are then those of that machine.

How it is judged
DOCKER_HOST, which goes before DOCKER_CONTEXT, which goes before what `docker context use` has set; and the address that the
context leads to. A context that does not exist is a fault. Another machine is a warning where this one has a GPU.

Known exceptions
An address of this very machine (tcp://localhost) is no other one. A daemon in Docker Desktop's virtual machine is judged by
docker-daemon. Without a GPU on this machine another one's daemon is what one would expect.

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


def summary(facts: Facts) -> str:
    daemon = facts.engines.docker
    return way(facts) if daemon and daemon.reachable else f"{way(facts)}, where no daemon answers"


CHECK = Check(judge=judge, summary=summary, problems=(CONTEXT_MISSING, ELSEWHERE))
