"""A limit on a process's address space (ulimit -v) that is too low for CUDA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.fixes.limits import BY_NAME
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem

LIFTED = "python3 -c \"import ctypes; print('cuInit:', ctypes.CDLL('libcuda.so.1').cuInit(0))\"  # 0 is success"
WHERE_SET = look(
    "Find where it is set and remove it; limit memory with cgroups instead",
    "grep -rnE 'ulimit +-[a-zA-Z]*v|[[:space:]]as[[:space:]]' /etc/profile /etc/profile.d /etc/security/limits.conf "
    "/etc/security/limits.d ~/.bashrc ~/.profile",
)
LIMITED = Problem(
    id="address-space-limit-too-low",
    title="The limit on address space is too low for CUDA (ulimit -v)",
    why="When it starts, CUDA reserves addresses for the memory of all GPUs and of the machine, many times more than it uses. "
    "With a limit on address space (ulimit -v, 'as' in limits.conf, h_vmem of a batch system) it fails with 'out of memory'.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Remove the limit in this shell", "ulimit -v unlimited", verify=LIFTED, where="shell"),
        WHERE_SET,
    ),
)


def limited(facts: Facts, said: str, evidence: dict[str, Any]) -> Finding | None:
    soft, hard = facts.limits.address_space
    if soft is None:
        return None
    words = f"{said}; its address space is limited to {soft >> 20:,} MiB (ulimit -v)"
    found = {**evidence, "address_space_bytes": soft, "hard_limit_bytes": hard}
    here = LIMITED.fixes[:1] if hard is None else ()  # the shell cannot raise the hard limit
    limit = BY_NAME["address_space"]
    elsewhere = [fix for fix in limit.raised(soft, hard) if fix != limit.for_logins]  # which WHERE_SET finds
    problem = replace(LIMITED, fixes=(*here, *elsewhere, WHERE_SET))
    memory = known(lambda: sum(gpu.memory_total_mib for gpu in facts.nvml.gpus), 0)
    is_sure = soft >> 20 < memory  # less than CUDA reserves at the least
    return problem.found(words, found, confidence=Confidence.CONFIRMED if is_sure else Confidence.LIKELY)
