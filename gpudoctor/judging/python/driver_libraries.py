"""Driver libraries that cannot be loaded, though nothing is wrong with them: they live elsewhere, or the image does not fit."""

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
    why="The kernel module is the node's, but nvidia-smi and the libraries are in the operator's driver container. That is as it "
    "should be for pods. Driver packages on the node itself would get in the operator's way.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        Fix("Look through the container's own files", f"sudo chroot {ROOT} nvidia-smi", kind="set", needs=("root",)),
        Fix("Look from inside a pod that has a GPU", "kubectl exec POD -- nvidia-smi"),
    ),
    references=("https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/",),
)


def in_operator(facts: Facts) -> Finding | None:
    """Where the operator's container mounted its root on this host."""
    is_there = known(lambda: facts.container.engine is None and ROOT in facts.container.mount_points)
    return IN_OPERATOR.found(f"the driver's files are under {ROOT}, and none are on the node itself", {}) if is_there else None


IMAGE = Problem(
    id="image-does-not-fit-driver-libraries",
    title="This image cannot load the host's driver libraries",
    why="The engine lends a container the libraries of the host's driver. They are built for the GNU C library of the last ten "
    "years and for the host's processor: an image with musl (Alpine), a very old one, or one for another processor cannot load "
    "them.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Build the image on one that fits, for example (Dockerfile)", "FROM <base>", kind="manual"),
        look("See what it has now", "cat /etc/os-release; uname -m; ldd --version 2>&1 | head -n 1"),
    ),
    references=("https://github.com/NVIDIA/nvidia-docker/issues/509",),
)
BASE = "ubuntu:24.04"
MISFITS = (
    (r"Error relocating|Error loading shared library", "its C library is musl"),
    (r"version [`']GLIBC_[\d.]+' not found", "its GNU C library is too old"),
    (
        r"wrong ELF class|Exec format error|invalid ELF header|wrong architecture",
        "its programs are for another processor or width",
    ),
)


def misfit(facts: Facts, error: str) -> Finding | None:
    """What the loader of a container says of libraries that work on the host."""
    if facts.container.engine is None:
        return None
    reason = next((words for pattern, words in MISFITS if re.search(pattern, error)), None)
    return IMAGE.found(f"{reason}: {error}", {"error": error, "base": BASE}) if reason else None


ELSEWHERE = (IN_OPERATOR, IMAGE)
# Where one of these is found, the CUDA release that programs are told is not the driver's.
WRONG_LIBCUDA = (
    "ld-preload-cuda-library",
    "bare-metal-803-mixed-libcuda",
    "container-compat-lib-shadows-driver",
    "stub-libcuda-loaded",
)
