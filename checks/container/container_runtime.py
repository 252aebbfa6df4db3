"""Docker can give the GPU to a container: NVIDIA's toolkit is installed, and the running daemon knows it.

What it means
Docker itself has no GPU support. NVIDIA's container toolkit puts devices and libraries into containers. The daemon finds the
toolkit in one of three ways: a hook that was present when the daemon started (--gpus), a runtime named nvidia, or a CDI
specification.

How it is judged
The toolkit's programs on this host are compared with what the running daemon reports: its runtimes, whose programs must exist,
and the devices it has discovered. A daemon looks for the hook and reads its configuration only when it starts.

Known exceptions
Docker Desktop on Windows has its own GPU support. With the hook alone --gpus works; the nvidia runtime is then not needed. A
toolkit that was only upgraded while the daemon ran is not a fault; a registered runtime shows that.

References
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
https://github.com/NVIDIA/nvidia-container-toolkit/issues/150
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.judging.containers.cdi import OFF
from gpudoctor.judging.containers.daemon import docker_here, running
from gpudoctor.judging.containers.runtime import (
    MISSING,
    NEWER,
    NOT_CONFIGURED,
    PROGRAM_MISSING,
    has_cdi_devices,
    not_known,
    program_missing,
    toolkit_missing,
)
from gpudoctor.model import Check, Finding, Skip


def judge(facts: Facts) -> Iterator[Finding]:
    docker_here(facts)
    daemon = running(facts)
    if daemon.is_desktop or daemon.is_podman:
        raise Skip("Docker Desktop has its own GPU support" if daemon.is_desktop else "Podman answers the docker command")
    finding = program_missing(facts, daemon) or toolkit_missing(facts, daemon) or not_known(facts, daemon)
    if finding:
        yield finding


def summary(facts: Facts) -> str:
    daemon = facts.engines.docker
    if daemon and has_cdi_devices(daemon):
        return "Docker has discovered the GPU through CDI"
    return "Docker has the nvidia runtime" if daemon and "nvidia" in daemon.runtimes else "Docker has NVIDIA's hook"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(MISSING, NOT_CONFIGURED, NEWER, PROGRAM_MISSING, OFF),
    needs=("docker-daemon",),
    tags=("docker",),
)
