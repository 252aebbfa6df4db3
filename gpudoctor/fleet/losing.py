"""Which GPUs of a node cannot be used, and which of its problems took them."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.fleet.model import Node, Problem
from gpudoctor.model import Status

OF_ALL_GPUS = ("hardware", "driver", "cuda", "health", "multi-gpu", "links")
_OF_GPUS = (*OF_ALL_GPUS, "compute")
# About how many GPUs there are: those that are listed can be used.
COUNTS = ("gpu-missing-from-driver", "gpu-missing-from-cuda", "fewer-gpus-than-expected", "gpus-not-as-expected")
# In these areas, but about a network or about the variables, limits and packages of a process: its GPUs work.
_ELSEWHERE = (
    "address-space-limit-too-low",
    "container-compat-lib-shadows-driver",
    "cuda-init-out-of-memory",
    "cuda-visible-devices-hides-all-gpus",
    "cuda-visible-devices-hides-requested-gpu",
    "cuda-visible-devices-unknown-gpu",
    "distributed-training-does-not-learn",
    "driver-too-old-for-runtime",
    "gloo-socket-interface-missing",
    "host-not-as-expected",
    "nccl-bypasses-nvlink",
    "nccl-socket-interface-missing",
    "nccl-uses-network-within-machine",
    "network-adapter-unhealthy",
    "network-not-as-expected",
    "stub-libcuda-loaded",
)


def takes(problem: Problem) -> bool:
    """Whether GPUs cannot be used because of it."""
    return problem.status is Status.FAIL and problem.area in _OF_GPUS and problem.id not in _ELSEWHERE


def lost(problems: Sequence[Problem], dead: Sequence[int], gpus: int) -> tuple[int, ...]:
    """The numbers of those that are there and cannot be used. dead: those that do not answer."""
    failed = [problem for problem in problems if takes(problem)]
    whole = [each for each in failed if each.gpu is None and each.area in OF_ALL_GPUS and each.id not in COUNTS]
    if whole and not dead:
        return tuple(range(gpus))
    return tuple(sorted({*dead, *(problem.gpu for problem in failed if problem.gpu is not None)}))


def taken_by(node: Node, ids: set[str]) -> bool:
    """Whether one of these problems took GPUs of the node."""
    return any(problem.id in ids and takes(problem) for problem in node.problems)
