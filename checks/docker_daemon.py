"""The Docker daemon that answers runs on this host's own kernel, as a normal service with a valid configuration.

What it means
A container sees a GPU only through the daemon that starts it. A daemon in a virtual machine (Docker Desktop) or in a snap's
confinement does not see the host's driver and toolkit, whatever is installed and configured beside it.

How it is judged
The docker command's context, the real path of the docker program, what the daemon says of itself (operating system, kernel,
root directory), whether its daemon.json is JSON, and the state of docker.service where nothing answers.

Known exceptions
A snap that has registered the nvidia runtime works. Docker Desktop on Windows works where it uses the WSL 2 engine. A daemon
that was switched off on purpose is no fault. Without an NVIDIA driver there is nothing to judge.

References
https://github.com/NVIDIA/nvidia-docker/issues/1711
https://github.com/NVIDIA/nvidia-docker/issues/1642
https://github.com/NVIDIA/nvidia-docker/issues/1352
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.runtime import Docker
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Unavailable, fix_on

RUN = "docker run --rm --gpus all ubuntu nvidia-smi"
ENGINE = "curl -fsSL https://get.docker.com | sudo sh"
TOOLKIT = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"

DESKTOP_LINUX = Problem(
    id="docker-desktop-linux-no-gpu",
    title="Docker Desktop for Linux has no access to the GPU",
    why="It runs containers in a virtual machine that the GPU is not passed to. Docker Engine on the host has access.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Let the docker command use the engine of the host (if that is installed)",
            "unset DOCKER_HOST; docker context use default",
            verify=RUN,
        ),
        *fix_on(
            "Install the engine first",
            verify=RUN,
            risk="disruptive",
            needs=("network",),
            debian=f"{ENGINE} && docker context use default",
            rhel=f"{ENGINE} && docker context use default",
            arch="sudo pacman -S docker && sudo systemctl enable --now docker && docker context use default",
            suse="sudo zypper install docker && sudo systemctl enable --now docker && docker context use default",
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1711",),
)

DESKTOP_WINDOWS = Problem(
    id="docker-desktop-windows-backend",
    title="Docker Desktop on Windows does not use the WSL 2 engine",
    why="Only with the WSL 2 engine can its containers use a GPU; the Hyper-V engine has none.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("In Docker Desktop: Settings > General > 'Use the WSL 2 based engine'", verify=RUN),
        Fix("Then Settings > Resources > WSL integration: switch on this distribution", verify=RUN),
        Fix("Bring WSL itself up to date, from Windows", "wsl.exe --update"),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1352",),
)

SNAP = Problem(
    id="docker-snap",
    title="Docker is a snap, which does not see the driver",
    why="A snap is shut off from the host: its daemon reads neither /etc/docker/daemon.json nor the host's driver and toolkit.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Replace it with Docker's own packages (images and volumes of the snap are deleted)",
            f"sudo snap remove --purge docker && {ENGINE} && {TOOLKIT}",
            risk="destructive",
            needs=("network",),
            verify=RUN,
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1642",),
)

INVALID = Problem(
    id="daemon-json-invalid",
    title="Docker's daemon.json is not valid JSON",
    why="The daemon does not start with such a file; one that runs has read it before. A comma or a quote is wrong.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("See where it breaks", "cd && python3 -m json.tool <file>"),
        Fix("Once corrected", "sudo systemctl restart docker", risk="disruptive", verify="docker info"),
    ),
)

FAILED = Problem(
    id="docker-daemon-not-running",
    title="The Docker daemon does not start",
    why="Its service has failed, so that no container can be started. Its log says why.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Read why", "sudo journalctl -u docker -b --no-pager | grep -iE 'error|fail|unable' | tail -n 20"),
        Fix("Once that is solved", "sudo systemctl restart docker", risk="disruptive", verify="docker info"),
    ),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if not facts.runtime.docker_installed:
        raise Skip("Docker is not installed")
    if not facts.system.wsl and facts.driver.module_version is None:
        raise Skip("no NVIDIA driver is loaded that containers could use")
    known = before_asking(facts)
    if known:
        yield known
        return
    daemon = facts.runtime.docker
    if daemon is None or not daemon.reachable:
        yield not_running(facts, daemon)
    elif daemon.is_desktop:
        yield from desktop(facts, daemon)


def before_asking(facts: Facts) -> Finding | None:
    """What needs no answer of the daemon, which may be closed to us."""
    if facts.runtime.context == "desktop-linux" and not facts.system.wsl:
        return DESKTOP_LINUX.found("the docker command's context is desktop-linux", {"context": "desktop-linux"})
    if facts.runtime.is_snap:
        return snap(facts)
    if facts.runtime.daemon_json_error:
        path, error = facts.runtime.daemon_json_path, facts.runtime.daemon_json_error
        return INVALID.found(f"{path}: {error}", {"file": path.replace("~/", "", 1), "error": error})
    return None


def snap(facts: Facts) -> Finding | None:
    evidence = {"program": facts.runtime.docker_binary}
    try:
        daemon = facts.runtime.docker
    except Unavailable as failure:
        return SNAP.found(f"docker is {facts.runtime.docker_binary}; {failure.reason}", evidence, confidence=Confidence.LIKELY)
    if daemon and "nvidia" in daemon.runtimes:
        return None
    root = f", its root is {daemon.root_dir}" if daemon and daemon.root_dir else ""
    return SNAP.found(f"docker is {facts.runtime.docker_binary}{root}", evidence)


def not_running(facts: Facts, daemon: Docker | None) -> Finding:
    unit = facts.services.unit("docker")
    if unit is None or unit.active != "failed":
        raise Skip("the Docker daemon does not run")
    error = daemon.error if daemon else "there is no socket"
    return FAILED.found(f"docker.service has failed ({unit.result}); {error}", {"result": unit.result, "error": error})


def desktop(facts: Facts, daemon: Docker) -> Iterator[Finding]:
    evidence = {"operating_system": daemon.operating_system, "kernel": daemon.kernel}
    words = f"the daemon runs in {daemon.operating_system}'s virtual machine, kernel {daemon.kernel}"
    if not facts.system.wsl:
        yield DESKTOP_LINUX.found(words, evidence)
    elif "microsoft" not in daemon.kernel.lower():
        yield DESKTOP_WINDOWS.found(words, evidence)


def summary(facts: Facts) -> str:
    daemon = facts.runtime.docker
    rootless = ", rootless" if daemon and daemon.rootless else ""
    return f"Docker {daemon.version if daemon else ''}{rootless}"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="container",
    problems=(DESKTOP_LINUX, DESKTOP_WINDOWS, SNAP, INVALID, FAILED),
)
