"""Docker can hand the GPU to a container: NVIDIA's toolkit is installed, and the running daemon knows it.

What it means
Docker itself knows nothing of GPUs. NVIDIA's container toolkit puts devices and libraries into containers, and the daemon
finds it in one of three ways: a hook that it saw at its start (--gpus), a runtime named nvidia, or a CDI specification.

How it is judged
The programs of the toolkit on this host against what the running daemon says: its runtimes and the devices that it has
discovered. A daemon looks for the hook, and reads its configuration, only when it starts.

Known exceptions
Docker Desktop on Windows brings its own. With the hook alone --gpus works; the nvidia runtime is then not needed. A toolkit
that was only upgraded while the daemon ran is healthy, which shows in a registered runtime.

References
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
https://github.com/NVIDIA/nvidia-container-toolkit/issues/150
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.runtime import Docker
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status, Unavailable, fix_on

GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
RUN = "docker run --rm --gpus all ubuntu nvidia-smi"
REPOSITORY = "https://nvidia.github.io/libnvidia-container"
KEYRING = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
CONFIGURE = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
ROOTLESS = Fix(
    "Register the runtime with the rootless daemon, which reads another file, and restart it",
    "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json && systemctl --user restart docker",
    risk="disruptive",
    verify=RUN,
)

MISSING = Problem(
    id="container-toolkit-missing",
    title="NVIDIA's container toolkit is not installed",
    why="The GPU works on this host and Docker is there, but without the toolkit no container can get the GPU: "
    "'could not select device driver \"\" with capabilities: [[gpu]]'.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        *fix_on(
            "Install the toolkit from NVIDIA's repository and register it (Docker restarts, and with it its containers)",
            verify=RUN,
            risk="disruptive",
            needs=("network",),
            debian=f"curl -fsSL {REPOSITORY}/gpgkey | sudo gpg --dearmor -o {KEYRING} && "
            f"curl -fsSL {REPOSITORY}/stable/deb/nvidia-container-toolkit.list | "
            f"sed 's#deb https://#deb [signed-by={KEYRING}] https://#' | "
            "sudo tee /etc/apt/sources.list.d/nvidia-container-toolkit.list && "
            f"sudo apt update && sudo apt install -y nvidia-container-toolkit && {CONFIGURE}",
            rhel=f"curl -fsSL {REPOSITORY}/stable/rpm/nvidia-container-toolkit.repo | "
            "sudo tee /etc/yum.repos.d/nvidia-container-toolkit.repo && "
            f"sudo dnf install -y nvidia-container-toolkit && {CONFIGURE}",
            suse=f"sudo zypper addrepo {REPOSITORY}/stable/rpm/nvidia-container-toolkit.repo && "
            f"sudo zypper --gpg-auto-import-keys install -y nvidia-container-toolkit && {CONFIGURE}",
            arch=f"sudo pacman -S nvidia-container-toolkit && {CONFIGURE}",
        ),
        Fix("Install nvidia-container-toolkit as NVIDIA's guide describes", verify=RUN, on=("other",)),
    ),
    references=(GUIDE,),
)

NOT_CONFIGURED = Problem(
    id="docker-runtime-not-configured",
    title="The running Docker daemon does not know NVIDIA's runtime",
    why="The toolkit is installed, but the daemon was not told of it, was not restarted since, or reads another daemon.json: "
    "'unknown or invalid runtime name: nvidia'.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Register the runtime and restart the daemon (and with it its containers)", CONFIGURE, risk="disruptive", verify=RUN),
    ),
    references=(GUIDE, "https://github.com/NVIDIA/nvidia-container-toolkit/issues/150"),
)

NEWER = Problem(
    id="toolkit-newer-than-daemon",
    title="Docker was started before NVIDIA's container toolkit was installed",
    why="The daemon looks for the toolkit's hook only when it starts; until then --gpus says 'could not select device driver'.",
    action=Action.RESTART_APP,
    status=Status.WARN,
    fixes=(Fix("Restart it (and with it its containers)", "sudo systemctl restart docker", risk="disruptive", verify=RUN),),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if not facts.runtime.docker_installed:
        raise Skip("Docker is not installed")
    if not facts.system.wsl and facts.driver.module_version is None:
        raise Skip("no NVIDIA driver is loaded that containers could use")
    daemon = facts.runtime.docker
    if daemon is None or not daemon.reachable:
        raise Skip("the Docker daemon does not run")
    if daemon.is_desktop or daemon.is_podman:
        raise Skip("Docker Desktop brings its own GPU support" if daemon.is_desktop else "it is Podman that answers")
    finding = toolkit_missing(facts, daemon) or not_known(facts, daemon)
    if finding:
        yield finding


def toolkit_missing(facts: Facts, daemon: Docker) -> Finding | None:
    if facts.runtime.toolkit_installed or facts.runtime.program("nvidia-ctk") or _gives_gpus(daemon):
        return None
    return MISSING.found(f"Docker {daemon.version}, but neither nvidia-ctk nor its hook", {"docker": daemon.version})


def not_known(facts: Facts, daemon: Docker) -> Finding | None:
    """The daemon has neither the runtime nor a CDI device; the hook alone is enough, if it was there in time."""
    if _gives_gpus(daemon):
        return None
    path, settings = facts.runtime.daemon_json_path, facts.runtime.daemon_json or {}
    problem = replace(NOT_CONFIGURED, fixes=(ROOTLESS,)) if daemon.rootless else NOT_CONFIGURED
    evidence = {"file": path, "runtimes": daemon.runtimes}
    if "nvidia" in (settings.get("runtimes") or {}):
        return problem.found(f"{path} names the nvidia runtime, but the daemon has not read it since: restart it", evidence)
    if not facts.runtime.program("nvidia-container-runtime-hook"):
        runtimes = ", ".join(daemon.runtimes)
        return problem.found(
            f"the daemon's runtimes are {runtimes}; {path} names none of NVIDIA's, and there is no hook", evidence
        )
    newer = facts.runtime.toolkit_newer_than_daemon
    if newer is None:
        raise Unavailable("whether the hook was there when the daemon started cannot be seen")
    if newer:
        return NEWER.found("the hook was installed after dockerd had started", evidence, confidence=Confidence.LIKELY)
    return None


def _gives_gpus(daemon: Docker) -> bool:
    return "nvidia" in daemon.runtimes or any(device.startswith("nvidia.com/gpu") for device in daemon.discovered_devices)


def summary(facts: Facts) -> str:
    daemon = facts.runtime.docker
    if daemon and any(device.startswith("nvidia.com/gpu") for device in daemon.discovered_devices):
        return "Docker has discovered the GPU by CDI"
    return "nvidia is among Docker's runtimes" if daemon and "nvidia" in daemon.runtimes else "Docker has NVIDIA's hook"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="container",
    problems=(MISSING, NOT_CONFIGURED, NEWER),
    needs=("docker-daemon",),
)
