"""Why Docker does not find NVIDIA's toolkit: missing, not registered, or installed after the daemon started. Pure."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.docker import Docker
from gpudoctor.fixes.common import install_on
from gpudoctor.fixes.engines import START, restarting_docker
from gpudoctor.judging.containers.cdi import switched_off
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status, Unavailable

GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
REPOSITORY = "https://nvidia.github.io/libnvidia-container"
KEYRING = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
CONFIGURE = "sudo nvidia-ctk runtime configure --runtime=docker"
STANDARD_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin", "/bin", "/sbin")
GPUS_BY_CDI = (29, 2)  # first Docker in which --gpus tries CDI first
CDI_DEVICES = "<docker> run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi"
ROOTLESS = Fix(
    "Register the runtime in the rootless daemon's own file, and restart the daemon",
    "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json && systemctl --user restart docker",
    risk="disruptive",
    verify=START,
    kind="restart",
    engines=("docker",),
)

MISSING = Problem(
    id="container-toolkit-missing",
    title="NVIDIA's container toolkit is not installed",
    why="The GPU works on this host and Docker is installed, but without the toolkit no container can get the GPU, however it is "
    "requested.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        *restarting_docker(
            *install_on(
                "Install the toolkit from NVIDIA's repository and register it",
                verify=START,
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
            told=" (restarts Docker and its containers)",
        ),
        Fix("Install nvidia-container-toolkit as described in NVIDIA's guide", verify=START, on=("other",)),
    ),
    references=(GUIDE,),
)

NOT_CONFIGURED = Problem(
    id="docker-runtime-not-configured",
    title="The running Docker daemon does not know NVIDIA's runtime",
    why="The toolkit is installed, but it is not registered with the daemon, the daemon was not restarted since, or the daemon "
    "reads another daemon.json.",
    action=Action.FIX_CONFIG,
    fixes=(
        *restarting_docker(
            Fix("Register the runtime", CONFIGURE, risk="disruptive", verify=START, kind="set", needs=("root",)),
            told=" and restart Docker (restarts its containers)",
        ),
    ),
    references=(GUIDE, "https://github.com/NVIDIA/nvidia-container-toolkit/issues/150"),
)

NEWER = Problem(
    id="toolkit-newer-than-daemon",
    title="Docker was started before NVIDIA's container toolkit was installed",
    why="The daemon looks for the toolkit's hook only when it starts. Until it is restarted, --gpus fails.",
    action=Action.RESTART_APP,
    status=Status.WARN,
    fixes=(
        Fix(
            "Restart Docker and its containers",
            "sudo systemctl restart docker",
            risk="disruptive",
            verify=START,
            kind="restart",
            needs=("root",),
        ),
    ),
)

PROGRAM_MISSING = Problem(
    id="nvidia-runtime-program-missing",
    title="NVIDIA's runtime is registered with Docker but not installed",
    why="daemon.json still names the runtime, but the toolkit was removed, moved or only partly installed. Containers that use "
    "this runtime do not start. The missing program is the runtime, not the image's command.",
    action=Action.INSTALL,
    fixes=(
        *restarting_docker(
            *install_on(
                "Reinstall the complete toolkit",
                verify=START,
                risk="disruptive",
                needs=("network",),
                debian=f"sudo apt install --reinstall nvidia-container-toolkit nvidia-container-toolkit-base && {CONFIGURE}",
                rhel="sudo dnf reinstall nvidia-container-toolkit nvidia-container-toolkit-base || sudo dnf install "
                f"nvidia-container-toolkit; {CONFIGURE}",
                suse=f"sudo zypper install --force nvidia-container-toolkit && {CONFIGURE}",
                arch=f"sudo pacman -S nvidia-container-toolkit && {CONFIGURE}",
            ),
        ),
        Fix(
            "If containers need no GPU: remove the runtime (and default-runtime) from daemon.json, then restart Docker",
            "sudoedit /etc/docker/daemon.json && sudo systemctl restart docker",
            risk="disruptive",
            needs=("root",),
            engines=("docker",),
        ),
    ),
    references=(GUIDE,),
)

NO_HOOK = Problem(
    id="nvidia-hook-missing",
    title="The toolkit's hook, which --gpus needs, is not installed",
    why="The toolkit's base package alone supports CDI and the runtime named nvidia. --gpus, and the runtime in legacy mode, "
    "also need nvidia-container-runtime-hook.",
    action=Action.INSTALL,
    fixes=(
        *restarting_docker(
            *install_on(
                "Install the complete toolkit",
                verify=START,
                risk="disruptive",
                needs=("network",),
                debian="sudo apt install nvidia-container-toolkit",
                rhel="sudo dnf install nvidia-container-toolkit",
                suse="sudo zypper install nvidia-container-toolkit",
                arch="sudo pacman -S nvidia-container-toolkit",
                undos={
                    "debian": "sudo apt remove nvidia-container-toolkit",
                    "rhel": "sudo dnf remove nvidia-container-toolkit",
                    "suse": "sudo zypper remove nvidia-container-toolkit",
                    "arch": "sudo pacman -Rs nvidia-container-toolkit",
                },
            )
        ),
        Fix("Request the GPU by CDI (Docker 28.2 or later)", CDI_DEVICES, engines=("docker",)),
        Fix("Request the GPU by CDI", CDI_DEVICES, engines=("podman",)),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",),
)


def toolkit_missing(facts: Facts, daemon: Docker) -> Finding | None:
    if facts.engines.toolkit_installed or facts.engines.program("nvidia-ctk") or gives_gpus(daemon):
        return None
    return MISSING.found(f"Docker {daemon.version} is installed, but neither nvidia-ctk nor its hook", {"docker": daemon.version})


def not_known(facts: Facts, daemon: Docker) -> Finding | None:
    """The daemon has neither the runtime nor a CDI device; the hook alone is enough if it was installed before it started."""
    if gives_gpus(daemon):
        return None
    path, settings = facts.engines.daemon_json_path, facts.engines.daemon_json or {}
    problem = replace(NOT_CONFIGURED, fixes=(ROOTLESS,)) if daemon.rootless else NOT_CONFIGURED
    evidence = {"file": path, "runtimes": daemon.runtimes}
    if "nvidia" in (settings.get("runtimes") or {}):
        return problem.found(f"{path} names the nvidia runtime, but the daemon was not restarted after the change", evidence)
    if not facts.engines.program("nvidia-container-runtime-hook"):
        if by_cdi := facts.engines.cdi_specs and switched_off(daemon):
            return by_cdi
        runtimes = ", ".join(daemon.runtimes)
        return problem.found(
            f"the daemon's runtimes are {runtimes}; {path} does not name NVIDIA's runtime, and the hook is not installed",
            evidence,
        )
    newer = facts.engines.toolkit_newer_than_daemon
    if newer is None:
        raise Unavailable("whether the hook existed when the daemon started is unknown")
    if newer:
        return NEWER.found("the hook was installed after dockerd started", evidence, confidence=Confidence.LIKELY)
    return None


def gives_gpus(daemon: Docker) -> bool:
    return "nvidia" in daemon.runtimes or has_cdi_devices(daemon)


def has_cdi_devices(daemon: Docker) -> bool:
    return any(device.startswith("nvidia.com/gpu") for device in daemon.discovered_devices)


def program_missing(facts: Facts, daemon: Docker) -> Finding | None:
    """A finding if the registered runtime program no longer exists; a name without a path cannot be checked from here."""
    told = daemon.runtime_programs.get("nvidia", "")
    folder, _, name = told.rpartition("/")
    if name != "nvidia-container-runtime" or folder not in ("", *STANDARD_FOLDERS) or facts.engines.program(name):
        return None
    words = f"the daemon's runtime nvidia is {told}, which does not exist on this host"
    return PROGRAM_MISSING.found(words, {"program": told, "default_runtime": daemon.default_runtime})


def hook_missing(facts: Facts) -> Finding | None:
    """For --gpus. Docker 29.2 and later also accepts the CDI hook."""
    if facts.engines.program("nvidia-container-runtime-hook"):
        return None
    daemon = facts.engines.docker
    if daemon and daemon.numbers >= GPUS_BY_CDI and facts.engines.program("nvidia-cdi-hook"):
        return None
    return NO_HOOK.found(
        "nvidia-container-runtime-hook is not installed on this host", {"docker": daemon.version if daemon else ""}
    )


def hook_came_late(facts: Facts) -> Finding | None:
    """For --gpus, even if the runtime is registered."""
    if not facts.engines.toolkit_newer_than_daemon:
        return None
    return NEWER.found("the hook was installed after dockerd started", {}, confidence=Confidence.LIKELY)
