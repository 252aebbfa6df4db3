"""The kernel grants programs more memory than they have touched.

What it means
With vm.overcommit_memory = 2 the kernel counts every byte that a program reserves, touched or not, and refuses more than
CommitLimit. CUDA, PyTorch and JAX reserve far more than they use, so they fail with 'out of memory' or 'Cannot allocate memory'
while most of the memory is free.

How it is judged
Warns if vm.overcommit_memory is 2, less than 8 GiB can still be reserved, and at least twice as much memory is available. In a
snapshot without that setting, reservations that have nearly reached CommitLimit explain a failure of CUDA, but do not warn.

Known exceptions
With the usual settings 0 and 1, CommitLimit has no effect.

References
https://docs.kernel.org/mm/overcommit-accounting.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.fixes.common import ASK_OWNER
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Status, Unavailable

STRICT = 2
LEAST_MIB = 8 << 10
GUIDE = "https://docs.kernel.org/mm/overcommit-accounting.html"

STRICT_OVERCOMMIT = Problem(
    id="strict-overcommit",
    title="The kernel refuses memory although most of it is free (overcommit)",
    why="vm.overcommit_memory = 2 limits what all programs together may reserve, whether they use it or not. CUDA and deep "
    "learning frameworks reserve far more than they use and fail with 'out of memory'.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Allow overcommitment until the next boot",
            "sudo sysctl vm.overcommit_memory=0",
            verify="sysctl vm.overcommit_memory; grep -i commit /proc/meminfo",
            undo="sudo sysctl vm.overcommit_memory=2",
            on=("host", "wsl2"),
            kind="set",
            needs=("root",),
        ),
        Fix(
            "Find where it is set, and remove it there",
            "grep -rs overcommit /etc/sysctl.conf /etc/sysctl.d /run/sysctl.d /usr/lib/sysctl.d",
            on=("host", "wsl2"),
            kind="read",
        ),
        Fix(
            "If it must stay: raise the limit with more swap or a larger ratio",
            "sudo sysctl vm.overcommit_ratio=95",
            on=("host", "wsl2"),
            kind="set",
            needs=("root",),
        ),
        ASK_OWNER,
    ),
    references=(GUIDE,),
)


def judge(facts: Facts) -> Iterator[Finding]:
    mode = facts.system.overcommit_mode
    if mode not in (STRICT, None):
        return
    room, available = room_mib(facts), facts.system.memory_mib["MemAvailable"]
    if mode is None and room < 0:  # only possible without strict accounting
        return
    if room < LEAST_MIB and available > 2 * room:
        words = f"{max(room, 0):,} MiB can still be reserved, although {available:,} MiB are available"
        evidence = {"mode": mode, "room_mib": room, "available_mib": available}
        found = STRICT_OVERCOMMIT.found(words if mode is None else f"vm.overcommit_memory is {mode}: {words}", evidence)
        yield replace(found, is_clue=True, confidence=Confidence.LIKELY) if mode is None else found


def room_mib(facts: Facts) -> int:
    """How much more the kernel lets programs reserve in strict mode."""
    memory = facts.system.memory_mib
    if "CommitLimit" not in memory or "Committed_AS" not in memory:
        raise Unavailable("/proc/meminfo does not show how much memory is reserved")
    return memory["CommitLimit"] - memory["Committed_AS"]


def summary(facts: Facts) -> str:
    mode = facts.system.overcommit_mode
    return "no sign of strict overcommit accounting" if mode is None else f"vm.overcommit_memory is {mode}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(STRICT_OVERCOMMIT,),
    tags=("memory",),
)
