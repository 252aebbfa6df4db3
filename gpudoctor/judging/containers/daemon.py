"""What can be wrong with the daemon that the docker command talks to, and with which one that is. Pure."""

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
    why="It runs containers in a virtual machine that the GPU is not passed to. Docker Engine on the host has access.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Let the docker command use the engine of the host (if that is installed)",
            "unset DOCKER_HOST; docker context use default",
            verify=RUN,
            where="shell",
        ),
        *install_on(
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
    why="The daemon does not start with such a file; one that runs has read it before. A comma or a quote is wrong.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("See where it breaks", "cd && python3 -m json.tool <file>"),
        Fix(
            "Once corrected",
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
    why="Its service has failed, so that no container can be started. Its log says why.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("Read why", "sudo journalctl -u docker -b --no-pager | grep -iE 'error|fail|unable' | tail -n 20", root=True),
        Fix(
            "Once that is solved",
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
    title="The docker command is told to use a context that does not exist",
    why="DOCKER_CONTEXT, or the command's own configuration, names a context that was removed or is misspelt. No docker command "
    "works until another one is chosen.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Use the daemon of this machine",
            "unset DOCKER_CONTEXT; docker context use default",
            verify="docker info",
            where="shell",
        ),
        look("See which contexts there are", "DOCKER_CONTEXT=default docker context ls"),
    ),
    references=(CONTEXTS,),
)

ELSEWHERE = Problem(
    id="docker-daemon-elsewhere",
    title="The docker command talks to a daemon on another machine, not to this one's",
    why="Containers run where the daemon runs: they get that machine's GPUs, by that machine's driver and toolkit. Those of this "
    "machine play no part. Where that is meant, all is well.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        Fix(
            "If this machine is meant: use its own daemon",
            "unset DOCKER_HOST DOCKER_CONTEXT; docker context use default",
            where="shell",
        ),
        Fix("If the other one is meant: look there", "ssh MACHINE gpudoctor check"),
    ),
    references=(CONTEXTS,),
)

NOT_PERMITTED = Problem(
    id="docker-socket-denied",
    title="This user may not talk to the Docker daemon",
    why="Its socket belongs to root and the group docker. Whoever is in that group can become root on this machine.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Join the group, then log in again",
            "sudo usermod -aG docker $USER",
            verify="<docker> info",
            kind="set",
            needs=("root",),
        ),
        look("Run it as root, this time only", "sudo <docker> info", root=True),
    ),
    references=("https://docs.docker.com/engine/install/linux-postinstall/",),
)


def docker_here(facts: Facts) -> None:
    """Skips unless this host has Docker, a driver that containers could use, and a daemon of its own."""
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if not facts.engines.docker_installed:
        raise Skip("Docker is not installed")
    if facts.engines.daemon_is_elsewhere:
        raise Skip(f"the docker command's daemon is on another machine ({way(facts)})", Skip.UNSUPPORTED)
    if not facts.system.wsl and facts.driver.module_version is None:
        raise Skip("no NVIDIA driver is loaded that containers could use")


def running(facts: Facts) -> Docker:
    """The daemon of this host, that answers."""
    daemon = facts.engines.docker
    if daemon is None or not daemon.reachable:
        raise Skip("the Docker daemon does not run")
    return daemon


def way(facts: Facts) -> str:
    """By what the docker command finds its daemon: "DOCKER_HOST=ssh://", "context lab: tcp://"."""
    if facts.engines.docker_host:
        return f"DOCKER_HOST={facts.engines.endpoint}"
    return f"context {facts.engines.context or 'default'}" + (f": {facts.engines.endpoint}" if facts.engines.endpoint else "")


def context_missing(facts: Facts) -> Finding | None:
    if not facts.engines.context_is_missing:
        return None
    return CONTEXT_MISSING.found(f"there is no context {facts.engines.context!r}", {"context": facts.engines.context})


def elsewhere(facts: Facts) -> Finding | None:
    """Worth a word only on a machine with a GPU of its own."""
    if not facts.engines.daemon_is_elsewhere or not (facts.system.wsl or facts.driver.module_version):
        return None
    return ELSEWHERE.found(f"{way(facts)}, another machine", {"endpoint": facts.engines.endpoint})


def before_asking(facts: Facts) -> Finding | None:
    """What needs no answer of the daemon, which may be closed to us."""
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
