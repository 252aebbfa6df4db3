"""The Docker daemon that answers runs on this host's own kernel, as a normal service with a valid configuration.

What it means
A container sees a GPU only through the daemon that starts it. A daemon in a virtual machine (Docker Desktop) or in a snap's
confinement does not see the host's driver and toolkit, whatever is installed and configured on the host.

How it is judged
The check reads the docker command's context, the real path of the docker program, and the operating system, kernel and root
directory that the daemon reports. Its daemon.json must be valid JSON. If no daemon answers, the state of docker.service is read.

Known exceptions
A snap that has registered the nvidia runtime works. Docker Desktop on Windows works if it uses the WSL 2 engine. A daemon
that was disabled on purpose is not a fault. Without an NVIDIA driver the check does not apply.

References
https://github.com/NVIDIA/nvidia-docker/issues/1711
https://github.com/NVIDIA/nvidia-docker/issues/1642
https://github.com/NVIDIA/nvidia-docker/issues/1352
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.containers.daemon import (
    DESKTOP_LINUX,
    DESKTOP_WINDOWS,
    FAILED,
    INVALID,
    SNAP,
    before_asking,
    desktop,
    docker_here,
    not_running,
)
from gpudoctor.model import Check, Finding


def judge(facts: Facts) -> Iterator[Finding]:
    docker_here(facts)
    known = before_asking(facts)
    if known:
        yield known
        return
    daemon = facts.engines.docker
    if daemon is None or not daemon.reachable:
        yield not_running(facts, daemon)
    elif daemon.is_desktop:
        yield from desktop(facts, daemon)


def summary(facts: Facts) -> str:
    daemon = facts.engines.docker
    rootless = ", rootless" if daemon and daemon.rootless else ""
    return f"Docker {daemon.version if daemon else ''}{rootless}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DESKTOP_LINUX, DESKTOP_WINDOWS, SNAP, INVALID, FAILED),
    needs=("docker-context",),
    tags=("docker",),
)
