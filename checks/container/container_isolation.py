"""Neither SELinux nor a user namespace shuts this host's containers off from the GPU.

What it means
An engine can put the GPU's device nodes into a container, and the host can still forbid to open them: SELinux by the
container's label, a user namespace because root in the container is nobody on the host.

How it is judged
SELinux: it enforces, an engine separates containers by it (Podman, or a Docker with selinux-enabled), and its switch
container_use_devices is off. User namespaces: Docker's userns-remap with device nodes that are not open to everybody.

Known exceptions
A container that is started with --security-opt=label=disable is not separated. With nodes of mode 0666, as the driver makes
them, user namespaces do no harm. Docker without selinux-enabled does not separate, whatever SELinux does.

References
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
https://docs.docker.com/engine/security/userns-remap/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.docker import Docker
from gpudoctor.judging.containers.access import SELINUX, USERNS
from gpudoctor.model import Check, Confidence, Finding, Skip, Status, Unavailable


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if not (facts.engines.docker_installed or facts.engines.podman_installed):
        raise Skip("there is neither Docker nor Podman")
    if facts.system.wsl or facts.driver.module_version is None:
        raise Skip("no NVIDIA driver of this kernel is loaded")
    daemon = local_docker(facts)
    yield from filter(None, (user_namespaces(facts, daemon), selinux(facts, daemon)))


def local_docker(facts: Facts) -> Docker | None:
    """One that may not be asked is none, where Podman is what is used."""
    if facts.engines.daemon_is_elsewhere:
        return None
    try:
        daemon = facts.engines.docker
    except Unavailable:
        if facts.engines.podman_installed:
            return None
        raise
    return daemon if daemon and daemon.reachable and not daemon.is_desktop else None


def user_namespaces(facts: Facts, daemon: Docker | None) -> Finding | None:
    closed = [path for path in facts.devices.gpu_nodes if facts.devices.nodes[path].mode & 0o006 != 0o006]
    if not daemon or not daemon.uses_user_namespaces or not closed:
        return None
    mode = f"{facts.devices.nodes[closed[0]].mode:04o}"
    words = f"Docker maps users (userns-remap), and {', '.join(closed)} has mode {mode}"
    return USERNS.found(words, {"nodes": closed, "mode": mode})


def selinux(facts: Facts, daemon: Docker | None) -> Finding | None:
    separating = [name for name, does in separates(facts, daemon).items() if does]
    if not separating or not facts.system.selinux_enforcing or not facts.engines.program("nvidia-ctk"):
        return None
    if facts.engines.containers_may_use_devices:
        return None
    words = f"SELinux enforces, and container_use_devices is off: containers of {' and '.join(separating)} may not open the GPU"
    problem = replace(SELINUX, status=Status.WARN)
    return problem.found(words, {"engines": separating, "container_use_devices": "off"}, confidence=Confidence.LIKELY)


def separates(facts: Facts, daemon: Docker | None) -> dict[str, bool]:
    return {"Podman": facts.engines.podman_installed, "Docker": bool(daemon and daemon.has_option("selinux"))}


def summary(facts: Facts) -> str:
    return "containers may open the GPU's devices"


CHECK = Check(judge=judge, summary=summary, problems=(USERNS, SELINUX))
