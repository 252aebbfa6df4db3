"""What the system refused to a program, or killed it for: limits of the shell and the cgroup, memory, instructions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.fixes.limits import BY_NAME
from gpudoctor.judging.driver.address_space import LIMITED
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Skip

MIB = 1 << 20
INSTRUCTIONS = ("avx", "avx2", "fma")  # of the usual wheels for x86
SOURCE = "https://man7.org/linux/man-pages/man2/getrlimit.2.html"
WHERE_SET = look(
    "Find where it is set",
    "grep -sn ulimit ~/.bashrc ~/.profile /etc/profile /etc/profile.d/*.sh; grep -svh '^#' /etc/security/limits.conf "
    "/etc/security/limits.d/*.conf",
    verify="ulimit -a",
    on=("host", "wsl2"),
)
RESOURCE = Problem(
    id="resource-limit-stops-programs",
    title="A resource limit of the shell stops programs (ulimit)",
    why="The kernel refuses what exceeds the limit, or kills the process. Limits are inherited by everything that the shell, the "
    "service or the batch job starts.",
    action=Action.FIX_CONFIG,
    fixes=(
        WHERE_SET,
        Fix("In a container, a service or a batch job: raise it where that is started"),
    ),
    references=(SOURCE,),
)


class Limit(NamedTuple):
    """A row of /proc/self/limits, its name in fixes/limits.py, and the words of a program that meets it.

    below: a higher limit is not the cause.
    """

    title: str
    name: str
    words: re.Pattern[str]
    below: int = 1 << 63
    unit: str = "bytes"


NO_THREAD = re.compile(
    r"can't\ start\ new\ thread | pthread_create | Resource\ temporarily\ unavailable | fork:\ retry | \bEAGAIN\b",
    re.IGNORECASE | re.VERBOSE,
)
LIMITS = (
    Limit("Max cpu time", "cpu_seconds", re.compile(r"\bSIGXCPU\b|CPU time limit exceeded"), unit="seconds"),
    Limit("Max file size", "file_size", re.compile(r"\bSIGXFSZ\b|File too large|File size limit exceeded")),
    Limit("Max processes", "processes", NO_THREAD, 1 << 14, "processes"),
    Limit("Max stack size", "stack", re.compile(r"\bSIGSEGV\b"), 1 << 20),
    Limit(
        "Max data size",
        "data",
        re.compile(r"Cannot allocate memory|MemoryError|std::bad_alloc|\bENOMEM\b"),
    ),
)
NOT_PERMITTED = re.compile(r"(?:Permission denied|EACCES).*?(/[^\s'\"]+)")
OUT_OF_MEMORY = re.compile("out of memory|oom-kill", re.IGNORECASE)
NO_ADDRESSES = re.compile(
    r"""
    [Cc]annot\ allocate\ memory | MemoryError | std::bad_alloc | \bENOMEM\b | failed\ to\ map\ segment | out\ of\ memory
    | OUT_OF_MEMORY | can't\ start\ new\ thread | cannot\ map | mmap
    """,
    re.VERBOSE,
)


def findings(facts: Facts, words: str, signal: str, recorded: str) -> Iterator[Finding]:
    """What the words or the signal of a failure and the machine's records show together."""
    for look_for in (_killed_for_memory, _resources, _addresses, _may_not_run, _instructions):
        with suppress(Skip):
            yield from look_for(facts, f"{words}\nkilled by {signal}" if signal else words, recorded)


def _killed_for_memory(facts: Facts, words: str, recorded: str) -> Iterator[Finding]:
    if "SIGKILL" not in words or not OUT_OF_MEMORY.search(recorded):
        return
    limit = known(lambda: facts.limits.cgroup_memory_bytes)
    id = "memory-limit-reached" if "Memory cgroup out of memory" in recorded else "host-memory-exhausted"
    room = f"; the memory limit of this process is {limit // MIB} MiB" if limit else ""
    text = f"the kernel log says that a process was killed for lack of memory meanwhile{room}"
    yield facts.problems[id].found(text, {"recorded": recorded})


def _resources(facts: Facts, words: str, recorded: str) -> Iterator[Finding]:
    for limit in LIMITS:
        soft, hard = known(lambda limit=limit: facts.limits.named(limit.title), (None, None))  # type: ignore[misc]
        if soft is not None and soft < limit.below and limit.words.search(words):
            amount = f"{soft:,} {limit.unit}"
            evidence = {"limit": limit.title, "soft": soft, "hard": "unlimited" if hard is None else hard}
            words = f"{limit.title} (ulimit -{BY_NAME[limit.name].letter}) is {amount}"
            yield _raised(limit, soft, hard).found(words, evidence, confidence=Confidence.LIKELY)


def _raised(limit: Limit, soft: int, hard: int | None) -> Problem:
    """The problem, with the fixes for this limit; first in this shell, if the hard limit allows it."""
    here = () if hard is not None and hard <= soft else (BY_NAME[limit.name].in_shell,)
    return replace(RESOURCE, fixes=(*here, *BY_NAME[limit.name].raised(soft, hard), WHERE_SET))


def _addresses(facts: Facts, words: str, recorded: str) -> Iterator[Finding]:
    soft, hard = facts.limits.address_space
    if soft is not None and NO_ADDRESSES.search(words):
        evidence = {"address_space_bytes": soft, "hard_limit_bytes": hard}
        text = f"the address space of programs is limited to {soft // MIB:,} MiB (ulimit -v)"
        yield LIMITED.found(text, evidence, confidence=Confidence.LIKELY)


def _may_not_run(facts: Facts, words: str, recorded: str) -> Iterator[Finding]:
    folder = known(lambda: facts.environment.get("TMPDIR")) or "/tmp"
    refused = next((match[1] for match in NOT_PERMITTED.finditer(words) if match[1].startswith(folder.rstrip("/") + "/")), "")
    if refused and facts.limits.tmp.noexec:
        text = f"{folder} is mounted noexec, so that {refused} cannot be run"
        yield facts.problems["temporary-space-noexec"].found(text, {"file": refused}, confidence=Confidence.LIKELY)


def _instructions(facts: Facts, words: str, recorded: str) -> Iterator[Finding]:
    flags = facts.system.cpu_flags
    lacks = [name for name in INSTRUCTIONS if flags and name not in flags]
    if "SIGILL" in words and lacks:
        text = f"the processor, or the virtual machine, does not offer {', '.join(lacks)}"
        yield facts.problems["cpu-lacks-instructions"].found(text, {"lacks": lacks}, confidence=Confidence.LIKELY)
