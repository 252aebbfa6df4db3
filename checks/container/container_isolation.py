"""Neither SELinux nor a user namespace keeps this host's containers from the GPU.

What it means
Even if an engine puts the GPU's device nodes into a container, the host can forbid opening them: SELinux because of the
container's label, a user namespace because root in the container is an unprivileged user on the host.

How it is judged
SELinux: it is enforcing, an engine confines containers with it (Podman, or a Docker with selinux-enabled), and the boolean
container_use_devices is off. User namespaces: Docker uses userns-remap, and the device nodes are not open to all users.

Known exceptions
A container that is started with --security-opt=label=disable is not confined. Nodes with mode 0666, which the driver creates,
can also be opened in a user namespace. Docker without selinux-enabled does not confine containers, whatever SELinux does.

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
        raise Skip("neither Docker nor Podman is installed")
    if facts.system.wsl or facts.driver.module_version is None:
        raise Skip("no NVIDIA kernel module is loaded")
    daemon = local_docker(facts)
    yield from filter(None, (user_namespaces(facts, daemon), selinux(facts, daemon)))


def local_docker(facts: Facts) -> Docker | None:
    """None too if permission for the daemon is denied and Podman is installed."""
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
    words = f"SELinux is enforcing and container_use_devices is off: containers of {' and '.join(separating)} cannot open the GPU"
    problem = replace(SELINUX, status=Status.WARN)
    return problem.found(words, {"engines": separating, "container_use_devices": "off"}, confidence=Confidence.LIKELY)


def separates(facts: Facts, daemon: Docker | None) -> dict[str, bool]:
    return {"Podman": facts.engines.podman_installed, "Docker": bool(daemon and daemon.has_option("selinux"))}


def summary(facts: Facts) -> str:
    return "containers are allowed to open the GPU's devices"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(USERNS, SELINUX),
    tags=("docker",),
)
