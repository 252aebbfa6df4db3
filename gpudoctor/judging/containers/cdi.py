"""Problems of the CDI specifications of this host's GPUs, and of the engines that read them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudoctor.facts import Facts
from gpudoctor.facts.docker import Docker
from gpudoctor.facts.versions import dotted
from gpudoctor.fixes.common import install_on, look
from gpudoctor.fixes.engines import START
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

RELEASES = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/release-notes.html"
GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"
KIND = re.compile(r'"?kind"?\s*:\s*"?nvidia\.com/gpu\b')
LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{2,}\.\d+(?:\.\d+)?)\b")
NODE = re.compile(r"/dev/nvidia\d+\b")
VERSION = re.compile(r'"?cdiVersion"?\s*:\s*["\']?v?(\d+\.\d+\.\d+)')
NAME = re.compile(r'(?<![\w])["\']?name["\']?\s*:\s*["\']?([\w.:-]+)')
# Version of a specification -> the first Docker and the first Podman that reads it. Tried with Podman 4.3.1.
READ_SINCE = (((0, 6, 0), (25,), (4, 4)), ((0, 7, 0), (26, 1), (5, 1)))
FIRST_WITH_CDI = {"docker": (25,), "podman": (4, 1)}

STALE = Problem(
    id="cdi-spec-stale",
    title="The CDI specification describes another driver or other GPUs",
    why="Containers that request the GPU by CDI get files that no longer exist, or not all GPUs: they fail to start or start "
    "with the wrong libraries.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Regenerate the CDI specification in place",
            "sudo nvidia-ctk cdi generate --output=<file>",
            verify="nvidia-ctk cdi list",
            kind="set",
            needs=("root",),
        ),
    ),
    references=(GUIDE,),
)

REWRITE_ALL = Fix(
    "Regenerate the CDI specification in /etc/cdi or /var/run/cdi",
    "for file in $(grep -ls nvidia.com/gpu /etc/cdi/* /var/run/cdi/*); do sudo nvidia-ctk cdi generate --output=$file; done",
    verify="nvidia-ctk cdi list",
    kind="set",
    needs=("root",),
)

NONE = Problem(
    id="cdi-spec-missing",
    title="No CDI specification describes the GPU",
    why="An engine that uses CDI (Podman always does) reads the devices and libraries of a GPU from a file. The file was never "
    "generated or was deleted, so that the device nvidia.com/gpu is unknown.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Generate the CDI specification",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            verify="nvidia-ctk cdi list",
            kind="set",
            needs=("root",),
        ),
    ),
    references=(GUIDE,),
)

TOO_NEW = Problem(
    id="cdi-spec-too-new",
    title="This engine cannot read the CDI specification's version",
    why="An engine that does not support the version ignores the whole file, and reports only an unknown device. NVIDIA's "
    "toolkit 1.19.1 and later writes version 0.7.0, which requires Docker 26.1, Podman 5.1 or containerd 1.7.16, or later.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        Fix("Upgrade the engine", verify="nvidia-ctk cdi list"),
        *install_on(
            "Downgrade to a toolkit that writes an older version, and regenerate the file",
            needs=("network",),
            debian="sudo apt install --allow-downgrades nvidia-container-toolkit=1.18.2-1 nvidia-container-toolkit-base=1.18.2-1 "
            "libnvidia-container-tools=1.18.2-1 libnvidia-container1=1.18.2-1 && sudo nvidia-ctk cdi generate --output=<file>",
            rhel="sudo dnf downgrade nvidia-container-toolkit-1.18.2 nvidia-container-toolkit-base-1.18.2 "
            "libnvidia-container-tools-1.18.2 libnvidia-container1-1.18.2 && sudo nvidia-ctk cdi generate --output=<file>",
        ),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/1860", RELEASES),
)

CONFLICT = Problem(
    id="cdi-specs-conflict",
    title="Two CDI specifications in one directory describe the same GPU",
    why="An engine cannot decide between the two and uses neither. The device is unknown to it, although both files list it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Move away the specification that is not kept up to date",
            "sudo mv <file> /root/",
            verify="nvidia-ctk cdi list",
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md",),
)

OFF = Problem(
    id="docker-cdi-switched-off",
    title="Docker's support for CDI is disabled",
    why="Docker 25 to 28.1 reads CDI specifications only if daemon.json enables it (features: cdi). Docker 28.2 and later reads "
    "them unless daemon.json disables it.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Enable CDI and restart Docker (restarts its containers)",
            "sudo nvidia-ctk runtime configure --runtime=docker --cdi.enabled && sudo systemctl restart docker",
            risk="disruptive",
            verify="docker info | grep -A 3 'CDI spec'",
            kind="restart",
            needs=("root",),
            engines=("docker",),
        ),
        Fix("Request the GPU with --gpus instead", START),
    ),
    references=("https://docs.docker.com/build/building/cdi/",),
)

OLD_ENGINE = Problem(
    id="engine-too-old-for-cdi",
    title="The engine is too old for CDI",
    why="CDI devices such as nvidia.com/gpu=all require Docker 25 or Podman 4.1. Older versions treat the name as a file, or as "
    "a driver that they do not have.",
    action=Action.INSTALL,
    fixes=(
        Fix("With Docker: request the GPU with --gpus instead", START, engines=("docker",)),
        *install_on(
            "Upgrade the engine (restarts Docker and its containers)",
            risk="disruptive",
            needs=("network",),
            debian="sudo apt update && sudo apt install --only-upgrade docker-ce docker-ce-cli podman",
            rhel="sudo dnf upgrade docker-ce docker-ce-cli podman",
            suse="sudo zypper update docker podman",
            arch="sudo pacman -Syu docker podman",
        ),
    ),
    references=(GUIDE,),
)

UNKNOWN_DEVICE = Problem(
    id="cdi-device-unknown",
    title="The CDI specification has no GPU with the requested name",
    why="Valid names are: all, the indexes of nvidia-smi (0, 1), MIG instances (0:0), and UUIDs if the toolkit is "
    "set to write them.",
    action=Action.FIX_CONFIG,
    fixes=(look("List the valid names, and request one of them", "nvidia-ctk cdi list"),),
    references=(GUIDE,),
)


def effective(specifications: dict[str, str]) -> dict[str, str]:
    """The specifications of NVIDIA's GPUs; one in /var/run/cdi takes precedence over those in /etc/cdi."""
    gpus = {path: text for path, text in specifications.items() if KIND.search(text)}
    running = {path: text for path, text in gpus.items() if path.startswith("/var/run/")}
    return running or gpus


def none_written(facts: Facts) -> Finding | None:
    """Reported only where an engine would read it: with Podman and the toolkit, but without Docker."""
    uses_cdi = facts.engines.podman_installed and not facts.engines.docker_installed and facts.engines.program("nvidia-ctk")
    return no_specification() if uses_cdi else None


def no_specification() -> Finding:
    return NONE.found("no specification of nvidia.com/gpu in /etc/cdi or /var/run/cdi", confidence=Confidence.LIKELY)


def version_of(text: str) -> tuple[int, ...]:
    """(0, 7, 0) of "cdiVersion: 0.7.0"; empty without a version."""
    found = VERSION.search(text)
    return tuple(map(int, found[1].split("."))) if found else ()


def names_of(text: str) -> tuple[str, ...]:
    """The names of its devices: 0, 1, all, GPU-..."""
    return tuple(dict.fromkeys(NAME.findall(text)))


def unreadable(specifications: Mapping[str, str], engine: str, numbers: tuple[int, ...]) -> Finding | None:
    """engine: docker or podman, of the version `numbers`."""
    for path, text in specifications.items():
        version = version_of(text)
        for spec, docker, podman in READ_SINCE:
            least = podman if engine == "podman" else docker
            if numbers and version >= spec and numbers < least:
                words = f"{path} has version {dotted(version)}, which {engine.title()} {dotted(numbers)} cannot read"
                evidence = {"file": path, "version": dotted(version), "engine": engine, "needs": f"{engine} {dotted(least)}"}
                return TOO_NEW.found(words, evidence)
    return None


def in_conflict(specifications: Mapping[str, str]) -> Finding | None:
    """Two files in one directory that describe the same device. Between directories /var/run/cdi takes precedence."""
    known: dict[tuple[str, str], str] = {}
    for path, text in specifications.items():
        for name in names_of(text):
            first = known.setdefault((path.rpartition("/")[0], name), path)
            if first != path:
                return CONFLICT.found(f"{first} and {path} both describe nvidia.com/gpu={name}", {"file": path, "other": first})
    return None


def switched_off(daemon: Docker) -> Finding | None:
    """A daemon that reads specifications lists their directories."""
    if daemon.numbers < FIRST_WITH_CDI["docker"] or daemon.cdi_spec_dirs:
        return None
    return OFF.found(f"Docker {daemon.version} reads no directory with CDI specifications", {"docker": daemon.version})


def judge_one(facts: Facts, path: str, text: str) -> Finding | None:
    versions, nodes = set(LIBRARY.findall(text)), set(NODE.findall(text))
    there, driver = set(facts.devices.gpu_nodes), facts.driver.library_version or facts.driver.module_version
    words = []
    if versions and versions != {driver}:
        words.append(f"names driver {', '.join(sorted(versions))}, installed is {driver}")
    if nodes - there:
        words.append(f"names {', '.join(sorted(nodes - there))}, which does not exist")
    if nodes and there - nodes:
        words.append(f"does not name {', '.join(sorted(there - nodes))}")
    if not words:
        return None
    return STALE.found(f"{path} {' and '.join(words)}", {"file": path, "versions": sorted(versions), "driver": driver})
