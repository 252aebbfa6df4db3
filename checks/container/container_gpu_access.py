"""This container has the GPU: its device nodes, permission to open them, and the driver's libraries.

What it means
The engine gives a container access to the GPU when it creates the container: device nodes in /dev, permission to open them,
and the libraries of the host's driver. None of these can be added to a running container; it has to be created again.

How it is judged
The check runs only if the host has a GPU: every container can see the driver's module in /proc. It looks first for missing
device nodes: the GPU was not requested, was hidden by NVIDIA_VISIBLE_DEVICES, or was assigned to a pod that NVIDIA's runtime
did not start. Then it looks for nodes that cannot be opened. The error and the node's mode distinguish three causes: device
rules (EPERM), SELinux (EACCES although the mode allows everyone, and the host or its log confirms it) and user namespaces. Last
it looks for devices without libraries.

Known exceptions
The check does not apply on a host. Apptainer shows the host's /dev and adds no rules, so nodes that cannot be opened there are
a problem of the host. Libraries for video and graphics may be missing. Under WSL2 the device is /dev/dxg.

References
https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
https://github.com/apptainer/singularity/issues/5966
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.devices import Node
from gpudoctor.facts.known import known
from gpudoctor.fixes.engines import again
from gpudoctor.judging.containers.access import (
    COMPOSE,
    DOCKER,
    DOCUMENTATION,
    ENROOT,
    HOST_DRIVER,
    KUBERNETES,
    LOST,
    LXC,
    NO_GPUS_FLAG,
    NOT_ARRIVED,
    NV_MISSING,
    PODMAN,
    SELINUX,
    SMI,
    USERNS,
    VISIBLE_DEVICES,
    for_engine,
    named,
    no_devices,
)
from gpudoctor.model import Action, Cause, Check, Confidence, Finding, Fix, Problem, Skip, Unavailable, first_cause

CAPABILITIES = Problem(
    id="container-driver-capabilities-missing",
    title="NVIDIA_DRIVER_CAPABILITIES leaves out libraries that a program needs",
    why="The toolkit mounts only the libraries of the named capabilities: compute has CUDA, utility NVML, graphics "
    "OpenGL and Vulkan, video NVENC and NVDEC. Without the variable it mounts compute and utility.",
    action=Action.FIX_CONFIG,
    fixes=(
        *again(
            "Restart it with all capabilities (in a Dockerfile: ENV NVIDIA_DRIVER_CAPABILITIES=all)",
            "run --rm <all_gpus> -e NVIDIA_DRIVER_CAPABILITIES=all <image> nvidia-smi",
            kubectl="set env deployment/<chosen_name> NVIDIA_DRIVER_CAPABILITIES=all",
            verify=SMI,
        ),
    ),
    references=(DOCUMENTATION + "docker-specialized.html",),
)


NO_LIBRARIES = Problem(
    id="container-driver-libraries-missing",
    title="The container has the GPU's devices, but not the driver's libraries",
    why="Only device nodes were passed in (--device /dev/nvidia0, or a privileged container). Programs also need the libraries "
    "of the host's driver, in exactly the same version.",
    action=Action.FIX_CONFIG,
    fixes=(DOCKER, COMPOSE, PODMAN, KUBERNETES, ENROOT),
)
IN_LXC = Fix(
    "Install the libraries of the host's exact driver version, without the kernel module",
    "sudo sh NVIDIA-Linux-*-<driver>.run --no-kernel-module",
    verify=SMI,
    needs=("root",),
)

LXC_RULES = Problem(
    id="lxc-device-rules-missing",
    title="The LXC container is not allowed to open the GPU's devices",
    why="The nodes are mounted, but the container's device rules do not allow their major numbers.",
    action=Action.FIX_CONFIG,
    fixes=(LXC,),
)


DENIED = Problem(
    id="container-gpu-device-denied",
    title="The container is not allowed to open the GPU's devices",
    why="The node's mode allows it, but the kernel refuses. The usual cause is SELinux (Fedora, RHEL) or AppArmor on the host; "
    "which rule it is cannot be seen from inside the container.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "On the host: check whether SELinux is enforcing, and what it denied",
            "getenforce; getsebool container_use_devices; sudo dmesg | grep -iE 'denied.*nvidia' | tail -n 3",
            verify=SMI,
            where="host",
            needs=("root",),
        ),
        Fix(
            "On the host, if it is SELinux: allow all containers to use devices",
            "sudo setsebool -P container_use_devices 1",
            verify=SMI,
            where="host",
            needs=("root",),
        ),
    ),
)


REFUSALS = (LOST, LXC_RULES, SELINUX, USERNS, DENIED)

DENIAL = re.compile(
    r"""
    avc:\ +denied\ +\{[^}]*\}
    .*?\bname="(?P<node>nvidia[\w-]*)"
    .*?\bscontext=\S*?:(?P<label>\w+):s0
    """,
    re.VERBOSE,
)
WITHOUT_LABELS = Fix(
    PODMAN.title,
    "<docker> run --security-opt label=disable --rm <all_gpus> <image> nvidia-smi",
    verify=SMI,
)


def judge(facts: Facts) -> Iterator[Finding]:
    engine = facts.container.engine
    if engine is None:
        raise Skip("this is not a container")
    if not (facts.devices.gpu_nodes or "/dev/dxg" in facts.devices.nodes):
        yield no_devices(facts, engine)
        return
    denied = {path: node for path, node in facts.devices.nodes.items() if node.open_error in ("EPERM", "EACCES")}
    if denied and engine != "apptainer":
        refusals = list(refused(facts, engine, " and ".join(sorted(denied, reverse=True)), denied[max(denied)]))
        if refusals:
            yield from refusals
            return
    yield from libraries(facts, engine)


def refused(facts: Facts, engine: str, paths: str, node: Node) -> Iterator[Finding]:
    words = f"opening {paths} fails with {node.open_error}, mode {node.mode:04o}"
    evidence = {"nodes": paths, "error": node.open_error, "mode": f"{node.mode:04o}", "engine": engine, "nvml": _nvml(facts)}
    if node.open_error == "EPERM":
        lost = LOST.found(words, evidence, confidence=Confidence.LIKELY)
        yield LXC_RULES.found(words, evidence) if engine == "lxc" else lost
    elif node.mode & 0o006 == 0o006:
        labels = Cause(SELINUX, lambda facts: selinux(facts, engine, words, evidence))
        yield from first_cause((labels,), facts, DENIED.found(words, evidence))
    elif facts.container.user_namespace:
        yield USERNS.found(f"{words}; the container runs in a user namespace", evidence)


def _nvml(facts: Facts) -> str:
    try:
        return facts.nvml.init_error
    except Unavailable as failure:
        return failure.reason


def libraries(facts: Facts, engine: str) -> Iterator[Finding]:
    missing = [name for name in ("libcuda.so.1", "libnvidia-ml.so.1") if not _is_there(facts, name)]
    if not missing:
        return
    words = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in this {named(engine)}"
    capabilities = facts.environment.get("NVIDIA_DRIVER_CAPABILITIES") or "compute,utility"
    evidence = {"missing": missing, "engine": engine, "NVIDIA_DRIVER_CAPABILITIES": capabilities}
    if engine == "apptainer":
        yield NV_MISSING.found(words, evidence)
    elif _left_out(missing, capabilities):
        yield CAPABILITIES.found(f"{words}: NVIDIA_DRIVER_CAPABILITIES is {capabilities!r}", evidence)
    else:
        problem = replace(NO_LIBRARIES, fixes=(IN_LXC,)) if engine == "lxc" else for_engine(engine, NO_LIBRARIES)
        yield problem.found(words, evidence)


def _is_there(facts: Facts, soname: str) -> bool:
    named = (library for library in facts.libraries.all if library.soname == soname and library.size is not None)
    return any(not library.is_stub and not library.is_compat for library in named)


def _left_out(missing: list[str], capabilities: str) -> bool:
    """Whether every missing library belongs to a capability that was not requested."""
    asked = set(capabilities.replace(" ", "").split(","))
    needed = {"libcuda.so.1": "compute", "libnvidia-ml.so.1": "utility"}
    return "all" not in asked and all(needed[name] not in asked for name in missing)


def selinux(facts: Facts, engine: str, words: str, evidence: Mapping[str, object]) -> Finding | None:
    """A finding if the host's log shows a denial, or if SELinux is enforcing and does not let containers use devices."""
    problem = of_labels(engine)
    if denial := denial_of(facts):
        told = f"{words}; kernel log: SELinux denied {denial['label']} access to {denial['node']}"
        return problem.found(told, {**evidence, "label": denial["label"]})
    if known(lambda: facts.system.selinux_enforcing):
        return problem.found(words, evidence)
    if known(lambda: facts.host.system.selinux_enforcing and not facts.host.engines.containers_may_use_devices):
        told = f"{words}; on the host SELinux is enforcing, and container_use_devices is off"
        return problem.found(told, {**evidence, "container_use_devices": "off"})
    return None


def of_labels(engine: str) -> Problem:
    """A pod has no such option: only the host's boolean helps there."""
    of_podman, of_host = SELINUX.fixes
    of_engine = {"docker": (WITHOUT_LABELS,), "kubernetes": (), "enroot": ()}.get(engine, (of_podman,))
    return replace(SELINUX, fixes=(*of_engine, of_host))


def denial_of(facts: Facts) -> re.Match[str] | None:
    """The last denial of a driver node, in the host's log or in the part of it that is visible from inside."""
    logs = (lambda: facts.host.kernel_log.lines, lambda: facts.kernel_log.lines)
    lines = [line.text for read in logs for line in known(read, ())]
    return next((found for line in reversed(lines) if (found := DENIAL.search(line))), None)


def summary(facts: Facts) -> str:
    return f"{named(facts.container.engine or 'unknown')} with devices and driver libraries"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_GPUS_FLAG, NOT_ARRIVED, VISIBLE_DEVICES, HOST_DRIVER, NV_MISSING, CAPABILITIES, NO_LIBRARIES, *REFUSALS),
    tags=("kubernetes",),
)
