"""The CDI specifications of the GPU name the driver and the devices that are there now.

What it means
A CDI specification is a file that lists, for Podman, Docker and Kubernetes, which device nodes and library files a container
gets. It is written once, with full paths; after a driver upgrade or another GPU it has to be written again.

How it is judged
The driver version in the libraries' names, and the nodes /dev/nvidia0 and so on, of each specification of nvidia.com/gpu
against the installed libraries and the nodes in /dev. With Podman alone, a specification has to be there at all.

Known exceptions
A file in /var/run/cdi goes before one in /etc/cdi, so that an old one there does no harm. Under WSL2 the specification names
/dev/dxg and no version.

References
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"
KIND = re.compile(r'"?kind"?\s*:\s*"?nvidia\.com/gpu\b')
LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{2,}\.\d+(?:\.\d+)?)\b")
NODE = re.compile(r"/dev/nvidia\d+\b")

STALE = Problem(
    id="cdi-spec-stale",
    title="The CDI specification describes another driver or other GPUs",
    why="Containers that ask for the GPU by CDI are given files that are not there any more, or not all GPUs: they fail to start "
    "('unresolvable CDI devices', 'no such file or directory') or start with the wrong libraries.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Write it again",
            "sudo systemctl restart nvidia-cdi-refresh || sudo nvidia-ctk cdi generate --output=<file>",
            verify="nvidia-ctk cdi list",
        ),
    ),
    references=(GUIDE,),
)

NONE = Problem(
    id="cdi-spec-missing",
    title="Podman has no CDI specification of the GPU",
    why="Podman gets GPUs by CDI, and the toolkit is installed, but the specification was never written: "
    "'unresolvable CDI devices nvidia.com/gpu=all'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Write it",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            verify="podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable ubuntu nvidia-smi",
        ),
    ),
    references=(GUIDE,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.container.engine:
        raise Skip("the host's engines cannot be seen from a container")
    if facts.system.wsl or facts.driver.module_version is None:
        raise Skip("no NVIDIA driver of this kernel is loaded")
    specifications = effective(facts.runtime.cdi_specs)
    if not specifications:
        yield from none_written(facts)
    for path, text in specifications.items():
        yield from judge_one(facts, path, text)


def effective(specifications: dict[str, str]) -> dict[str, str]:
    """Those of NVIDIA's GPUs; where there is one in /var/run/cdi, it goes before those in /etc/cdi."""
    gpus = {path: text for path, text in specifications.items() if KIND.search(text)}
    running = {path: text for path, text in gpus.items() if path.startswith("/var/run/")}
    return running or gpus


def none_written(facts: Facts) -> Iterator[Finding]:
    uses_cdi = facts.runtime.podman_installed and not facts.runtime.docker_installed and facts.runtime.program("nvidia-ctk")
    if not uses_cdi:
        raise Skip("there is no CDI specification of a GPU")
    yield NONE.found("no specification of nvidia.com/gpu in /etc/cdi and /var/run/cdi", confidence=Confidence.LIKELY)


def judge_one(facts: Facts, path: str, text: str) -> Iterator[Finding]:
    versions, nodes = set(LIBRARY.findall(text)), set(NODE.findall(text))
    there, driver = set(facts.devices.gpu_nodes), facts.driver.library_version or facts.driver.module_version
    words = []
    if versions and versions != {driver}:
        words.append(f"names driver {', '.join(sorted(versions))}, installed is {driver}")
    if nodes - there:
        words.append(f"names {', '.join(sorted(nodes - there))}, which is not there")
    if nodes and there - nodes:
        words.append(f"does not name {', '.join(sorted(there - nodes))}")
    if words:
        yield STALE.found(f"{path} {' and '.join(words)}", {"file": path, "versions": sorted(versions), "driver": driver})


def summary(facts: Facts) -> str:
    return f"{', '.join(effective(facts.runtime.cdi_specs))} agrees with driver {facts.driver.library_version}"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="container",
    problems=(STALE, NONE),
)
