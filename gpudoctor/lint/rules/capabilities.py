"""Capabilities and `privileged`: what they give, and what they take from the choice of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.lint.compose import Compose, Service
from gpudoctor.lint.devcontainer import Devcontainer
from gpudoctor.lint.model import Fault, Rule
from gpudoctor.lint.purpose import commands
from gpudoctor.lint.scripts import Script
from gpudoctor.spelling import nearest

_KERNEL = "https://github.com/torvalds/linux/blob/master/include/uapi/linux/capability.h"

UNKNOWN = Rule(
    id="capability-unknown",
    title="A capability is added that does not exist",
    why="The engine refuses to create the container: 'invalid capability'. GPUs need no capability of the kernel; they are "
    "requested with --gpus, a reservation or CDI.",
    write="--cap-add SYS_ADMIN",
    references=(_KERNEL, "https://docs.docker.com/engine/containers/run/#runtime-privilege-and-linux-capabilities"),
    status="fail",
)
SHOWS_ALL = Rule(
    id="privileged-shows-all-gpus",
    title="privileged lets the container use GPUs that were not chosen for it",
    why="A privileged container may open every device of the host, so CUDA and nvidia-smi see all GPUs, whatever the request "
    "names. Add the one capability or device that the program needs instead.",
    write="--cap-add SYS_PTRACE   # or the capability that is needed, instead of --privileged",
    references=("https://github.com/NVIDIA/nvidia-docker/issues/764", "https://github.com/kubernetes/kubernetes/issues/81256"),
)
PROFILER = Rule(
    id="profiler-without-capability",
    title="Nsight Compute runs without the capability SYS_ADMIN",
    why="Unless the host's driver opens the counters to all users, ncu fails in such a container with ERR_NVGPUCTRPERM.",
    write="--cap-add SYS_ADMIN",
    references=("https://developer.nvidia.com/ERR_NVGPUCTRPERM",),
    status="info",
)
RULES = (UNKNOWN, SHOWS_ALL, PROFILER)

_NAMES_TEXT = """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST
    NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
    SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM
    BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""
_NAMES = frozenset(_NAMES_TEXT.split())  # of Linux 6.16


def compose(file: Compose) -> Iterator[Fault]:
    for service in file.services:
        yield from _service(service, "    cap_add: [{}]")


def script(file: Script) -> Iterator[Fault]:
    for run in file.runs:
        yield from _service(run.service, "--cap-add {}")


def devcontainer(file: Devcontainer) -> Iterator[Fault]:
    yield from _service(file.run.service, '"capAdd": ["{}"]')


def _service(service: Service, write: str) -> Iterator[Fault]:
    added = {item.text.strip().upper().removeprefix("CAP_"): item for item in service.node.at("cap_add")}
    for name, item in added.items():
        if name != "ALL" and name not in _NAMES and re.fullmatch(r"\w+", name):
            near = (*nearest(name, sorted(_NAMES)), "SYS_ADMIN")
            yield UNKNOWN.at(item.line, f"{service.name}: {item.text}", write.format(near[0]))
    privileged = service.node.at("privileged")
    if privileged.true and (chosen := _chosen(service)):
        yield SHOWS_ALL.at(privileged.line, f"{service.name}: privileged, with {chosen}", write.format("SYS_PTRACE"))
    may_profile = privileged.true or bool({"ALL", "SYS_ADMIN"} & added.keys())
    profiles = any(command.program == "ncu" for command in commands(service))
    if profiles and not may_profile and service.asks_for_gpu and service.complete:
        yield PROFILER.at(service.node.at("command").line or service.line, f"{service.name}: ncu", write.format("SYS_ADMIN"))


def _chosen(service: Service) -> str:
    """The GPUs that the request names, in words; "" for all of them."""
    for request in service.requests:
        ids = [item.text for item in request.at("device_ids")]
        if ids and not any("$" in one or one == "all" or one.endswith("=all") for one in ids):
            return f"GPU {', '.join(ids)}"
        count = request.at("count").text
        if count.isdecimal() and int(count):
            return f"{count} GPU" + "s" * (int(count) > 1)
    visible = service.environment.get("NVIDIA_VISIBLE_DEVICES")
    return f"NVIDIA_VISIBLE_DEVICES={visible.text}" if visible and re.fullmatch(r"\d+(?:,\d+)*", visible.text) else ""
