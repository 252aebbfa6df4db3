"""Driver libraries that are intact but cannot be loaded: they are elsewhere, or the image is incompatible."""

from __future__ import annotations

import re

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Finding, Fix, Problem, Status

ROOT = "/run/nvidia/driver"

IN_OPERATOR = Problem(
    id="driver-in-gpu-operator-container",
    title="This node's driver belongs to the GPU operator: only pods use it",
    why="The kernel module is loaded on the node, but nvidia-smi and the libraries are in the operator's driver container. "
    "That is normal for pods. Installing driver packages on the node would conflict with the operator.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        Fix("Run nvidia-smi from the driver container's files", f"sudo chroot {ROOT} nvidia-smi", kind="set", needs=("root",)),
        Fix("Run nvidia-smi in a pod that has a GPU", "kubectl exec <pod> -- nvidia-smi"),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/",),
)


def in_operator(facts: Facts) -> Finding | None:
    """The finding if the operator's container has mounted its root on this host."""
    is_there = known(lambda: facts.container.engine is None and ROOT in facts.container.mount_points)
    return (
        IN_OPERATOR.found(f"the driver's files are under {ROOT}; the node itself has no driver files", {}) if is_there else None
    )


IMAGE = Problem(
    id="image-does-not-fit-driver-libraries",
    title="This image cannot load the host's driver libraries",
    why="The engine mounts the libraries of the host's driver into the container. They are built for glibc releases of the "
    "last ten years and for the host's processor. An image with musl (Alpine), a very old image, or one for another processor "
    "cannot load them.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Build the image on a compatible base, for example (Dockerfile)", "FROM <base>", kind="manual", syntax="dockerfile"),
        look("Show what it has now", "cat /etc/os-release; uname -m; ldd --version 2>&1 | head -n 1"),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/509",),
)
BASE = "ubuntu:24.04"
MISFITS = (
    (r"Error relocating|Error loading shared library", "its C library is musl"),
    (r"version [`']GLIBC_[\d.]+' not found", "its GNU C library is too old"),
    (
        r"wrong ELF class|Exec format error|invalid ELF header|wrong architecture",
        "its programs are built for another processor or word size",
    ),
)


def misfit(facts: Facts, error: str) -> Finding | None:
    """The finding for an error of a container's loader about libraries that work on the host."""
    if facts.container.engine is None:
        return None
    reason = next((words for pattern, words in MISFITS if re.search(pattern, error)), None)
    return IMAGE.found(f"{reason}: {error}", {"error": error, "base": BASE}) if reason else None


ELSEWHERE = (IN_OPERATOR, IMAGE)
# If one of these is found, the CUDA release that programs see is not the driver's.
WRONG_LIBCUDA = (
    "ld-preload-cuda-library",
    "bare-metal-803-mixed-libcuda",
    "container-compat-lib-shadows-driver",
    "stub-libcuda-loaded",
)
