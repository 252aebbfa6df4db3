"""Problems of the daemon that the docker command connects to. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.docker import Docker
from gpudoctor.fixes.common import install_on, look
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip, Status, Unavailable

RUN = "docker run --rm --gpus all ubuntu nvidia-smi"
ENGINE = "curl -fsSL https://get.docker.com | sudo sh"
CONTEXTS = "https://docs.docker.com/engine/manage-resources/contexts/"
TOOLKIT = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"

DESKTOP_LINUX = Problem(
    id="docker-desktop-linux-no-gpu",
    title="Docker Desktop for Linux has no access to the GPU",
    why="Docker Desktop runs containers in a virtual machine without the GPU. Docker Engine on the host has access to it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Use Docker Engine on the host, if it is installed",
            "unset DOCKER_HOST; docker context use default",
            verify=RUN,
            where="shell",
        ),
        *install_on(
            "Install Docker Engine first",
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
    why="Its containers can use a GPU only with the WSL 2 engine. The Hyper-V engine does not support GPUs.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("In Docker Desktop: enable Settings > General > 'Use the WSL 2 based engine'", verify=RUN),
        Fix("In Docker Desktop: enable this distribution in Settings > Resources > WSL integration", verify=RUN),
        Fix("In Windows: update WSL", "wsl.exe --update"),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1352",),
)

SNAP = Problem(
    id="docker-snap",
    title="Docker is a snap, which cannot access the driver",
    why="A snap is isolated from the host: its daemon reads neither /etc/docker/daemon.json nor the host's driver and toolkit.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Disable the snap, which keeps its images and volumes, and install Docker's own packages",
            f"sudo snap disable docker && {ENGINE} && {TOOLKIT}",
            risk="disruptive",
            needs=("root", "network"),
            verify=RUN,
            kind="install",
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/1642",),
)

INVALID = Problem(
    id="daemon-json-invalid",
    title="Docker's daemon.json is not valid JSON",
    why="The daemon does not start with an invalid file. A running daemon read the file before it became invalid. Usually a "
    "comma or a quote is wrong.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Find the error in the file", "cd && python3 -m json.tool <file>"),
        Fix(
            "Once the file is corrected: restart Docker",
            "sudo systemctl restart docker",
            risk="disruptive",
            verify="docker info",
            kind="restart",
            needs=("root",),
        ),
    ),
)

FAILED = Problem(
    id="docker-daemon-not-running",
    title="The Docker daemon does not start",
    why="Its service has failed, so that no container can start. The service's log has the reason.",
    action=Action.FIX_CONFIG,
    fixes=(
        look(
            "Read the errors in the log",
            "sudo journalctl -u docker -b --no-pager | grep -iE 'error|fail|unable' | tail -n 20",
            root=True,
        ),
        Fix(
            "Once the error is fixed: restart Docker",
            "sudo systemctl restart docker",
            risk="disruptive",
            verify="docker info",
            kind="restart",
            needs=("root",),
        ),
    ),
)

CONTEXT_MISSING = Problem(
    id="docker-context-missing",
    title="The docker command uses a context that does not exist",
    why="DOCKER_CONTEXT or the docker configuration names a context that was removed or is misspelt. No docker command works "
    "until an existing context is selected.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Use the daemon on this machine",
            "unset DOCKER_CONTEXT; docker context use default",
            verify="docker info",
            where="shell",
        ),
        look("List the contexts", "DOCKER_CONTEXT=default docker context ls"),
    ),
    references=(CONTEXTS,),
)

ELSEWHERE = Problem(
    id="docker-daemon-elsewhere",
    title="The docker command uses a daemon on another machine",
    why="Containers run on the daemon's machine, with the GPUs, driver and toolkit of that machine. Those of this machine are "
    "not used. This is fine if it is intended.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        Fix(
            "If this machine should be used: switch to its daemon",
            "unset DOCKER_HOST DOCKER_CONTEXT; docker context use default",
            where="shell",
        ),
        Fix("If the other machine should be used: run gpudoctor there", "ssh <machine> gpudoctor check"),
    ),
    references=(CONTEXTS,),
)

NOT_PERMITTED = Problem(
    id="docker-socket-denied",
    title="Permission denied for the Docker socket",
    why="The socket belongs to root and the group docker. Members of this group can become root on this machine.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Add yourself to the docker group, then log in again",
            "sudo usermod -aG docker $USER",
            verify="<docker> info",
            kind="set",
            needs=("root",),
            undo="sudo gpasswd -d $USER docker",
        ),
        look("Run the command as root, this time only", "sudo <docker> info", root=True),
    ),
    references=("https://docs.docker.com/engine/install/linux-postinstall/",),
)


def docker_here(facts: Facts) -> None:
    """Skips unless this host has Docker, a local daemon, and a driver that containers could use."""
    if facts.container.engine:
        raise Skip("a container cannot see the host's engines")
    if not facts.engines.docker_installed:
        raise Skip("Docker is not installed")
    if facts.engines.daemon_is_elsewhere:
        raise Skip(f"the Docker daemon is on another machine ({way(facts)})", Skip.UNSUPPORTED)
    if not facts.system.wsl and facts.driver.module_version is None:
        raise Skip("no NVIDIA driver is loaded for containers to use")


def running(facts: Facts) -> Docker:
    """The daemon of this host, if it answers."""
    daemon = facts.engines.docker
    if daemon is None or not daemon.reachable:
        raise Skip("the Docker daemon is not running")
    return daemon


def way(facts: Facts) -> str:
    """How the docker command finds its daemon: "DOCKER_HOST=ssh://", "context lab: tcp://"."""
    if facts.engines.docker_host:
        return f"DOCKER_HOST={facts.engines.endpoint}"
    return f"context {facts.engines.context or 'default'}" + (f": {facts.engines.endpoint}" if facts.engines.endpoint else "")


def context_missing(facts: Facts) -> Finding | None:
    if not facts.engines.context_is_missing:
        return None
    return CONTEXT_MISSING.found(f"context {facts.engines.context!r} does not exist", {"context": facts.engines.context})


def elsewhere(facts: Facts) -> Finding | None:
    """Reported only on a machine that has a GPU itself."""
    if not facts.engines.daemon_is_elsewhere or not (facts.system.wsl or facts.driver.module_version):
        return None
    return ELSEWHERE.found(f"{way(facts)}, on another machine", {"endpoint": facts.engines.endpoint})


def before_asking(facts: Facts) -> Finding | None:
    """Problems that can be found without the daemon, which may deny access."""
    if facts.engines.context == "desktop-linux" and not facts.system.wsl:
        return DESKTOP_LINUX.found("the docker command's context is desktop-linux", {"context": "desktop-linux"})
    if facts.engines.is_snap:
        return snap(facts)
    if facts.engines.daemon_json_error:
        path, error = facts.engines.daemon_json_path, facts.engines.daemon_json_error
        return INVALID.found(f"{path}: {error}", {"file": path.replace("~/", "", 1), "error": error})
    return None


def snap(facts: Facts) -> Finding | None:
    evidence = {"program": facts.engines.docker_binary}
    try:
        daemon = facts.engines.docker
    except Unavailable as failure:
        return SNAP.found(f"docker is {facts.engines.docker_binary}; {failure.reason}", evidence, confidence=Confidence.LIKELY)
    if daemon and "nvidia" in daemon.runtimes:
        return None
    root = f", its root is {daemon.root_dir}" if daemon and daemon.root_dir else ""
    return SNAP.found(f"docker is {facts.engines.docker_binary}{root}", evidence)


def not_running(facts: Facts, daemon: Docker | None) -> Finding:
    unit = facts.services.unit("docker")
    if unit is None or unit.active != "failed":
        raise Skip("the Docker daemon is not running")
    error = daemon.error if daemon else "its socket does not exist"
    return FAILED.found(f"docker.service has failed ({unit.result}); {error}", {"result": unit.result, "error": error})


def desktop(facts: Facts, daemon: Docker) -> Iterator[Finding]:
    evidence = {"operating_system": daemon.operating_system, "kernel": daemon.kernel}
    words = f"the daemon runs in {daemon.operating_system}'s virtual machine, kernel {daemon.kernel}"
    if not facts.system.wsl:
        yield DESKTOP_LINUX.found(words, evidence)
    elif "microsoft" not in daemon.kernel.lower():
        yield DESKTOP_WINDOWS.found(words, evidence)
