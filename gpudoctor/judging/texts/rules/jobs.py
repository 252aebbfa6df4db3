"""Jobs in a text: who holds memory, and who makes the others wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Confidence, Finding, Fix

_OUT_OF_MEMORY = re.compile(
    r"""
    (?<![\d.])(?P<total>[\d.]{1,12})\ GiB\ total\ capacity;
    \ (?P<allocated>[\d.]+)\ (?P<allocated_unit>[GM])iB\ already\ allocated;
    \ (?P<free>[\d.]+)\ (?P<free_unit>[GMK]i)?(?:B|bytes)\ free;\ (?P<reserved>[\d.]+)\ (?P<reserved_unit>[GM])iB\ reserved
    """,
    re.VERBOSE,
)
_NEW_FORM = re.compile(
    r"""
    total\ capacity\ of\ (?P<total>[\d.]+)\ GiB\ of\ which\ (?P<free>[\d.]+)\ (?P<free_unit>[GMK]i)?(?:B|bytes)\ is\ free\.
    (?!\ Process\ \d) [^\n]{0,40}? this\ process\ has\ (?P<reserved>[\d.]+)\ (?P<reserved_unit>[GM])iB\ memory\ in\ use
    """,
    re.VERBOSE,
)
_CONTEXT_GIB = 1.5  # what CUDA and its libraries hold beside PyTorch's memory
_SHARE = 0.25
_TIMEOUT = re.compile(r"\[Rank (\d+)\] Watchdog caught collective operation timeout")
_WORK = re.compile(
    r"""
    (?i)
    \b(?P<what>
        scanning | caching | tokeniz\w+ | mapping | map(?=\ \(num_proc|:) | indexing | preprocess\w* | extracting | filter(?:ing)?
        | running\ tokenizer | generating\ \w+\ split | download\w* | hashing | verifying | packing | converting | resolving\ data
        | evaluat\w+ | validat\w+ | loading\ (?:data|checkpoint)\w*
    )\b
    [^\n]{0,160}? \b(?P<done>\d+)%\s*\|
    """,
    re.VERBOSE,
)
_SHARE_OF_SHM = 0.1
_UNITS = {"G": 1.0, "M": 1 / 1024, "Gi": 1.0, "Mi": 1 / 1024, "Ki": 1 / 1024**2}


_NOBODY = re.compile(r"\| +No running processes found")
"""Who holds the memory is then not to be seen in nvidia-smi, and the check of memory names the way."""


def held_by_another(facts: Facts) -> Iterator[Finding]:
    """The numbers of PyTorch's message leave memory that neither it nor the driver's context holds."""
    for text in passages(facts):
        for match in (*_OUT_OF_MEMORY.finditer(text), *_NEW_FORM.finditer(text)):
            total, own = float(match["total"]), _gib(match["reserved"], match["reserved_unit"])
            free = _gib(match["free"], match["free_unit"] or "Ki")
            others = total - own - free - _CONTEXT_GIB
            if others > max(_SHARE * total, 1.0) and not _NOBODY.search(text):
                words = f"PyTorch holds {own:.1f} of {total:.1f} GiB and {free:.1f} GiB are free: other processes hold the rest"
                evidence = {"total_gib": total, "own_gib": round(own, 2), "others_gib": round(others, 1)}
                yield facts.problems["other-process-using-gpu"].found(words, evidence, confidence=Confidence.LIKELY)
                return


def held_by_named(facts: Facts) -> Iterator[Finding]:
    """PyTorch's message names other processes, which hold more of the GPU than the program itself."""
    for text in passages(facts):
        for match in _WITH_OTHERS.finditer(text):
            others = {pid: _gib(number, unit) for pid, number, unit in _OTHER.findall(match["holders"])}
            total, own, held = float(match["total"]), _OWN.search(match["holders"]), sum(others.values())
            if own is None:  # in a container its own process is one of those with another number
                continue
            used = _gib(own[1], own[2])
            if held > max(_SHARE * total, used):
                most = max(others, key=lambda pid: others[pid])
                words = f"process {most} holds {others[most]:.1f} of {total:.1f} GiB, and the program itself {used:.1f} GiB"
                evidence = {"pids": ",".join(others), "others_gib": round(held, 1), "own_gib": round(used, 1)}
                yield facts.problems["other-process-using-gpu"].found(words, evidence, confidence=Confidence.LIKELY)
                return


_WITH_OTHERS = re.compile(
    r"""
    total\ capacity\ of\ (?P<total>[\d.]+)\ GiB\ of\ which\ (?P<holders>[^\n]*\bProcess\ \d+\ has\ [^\n]*)
    """,
    re.VERBOSE,
)
_OTHER = re.compile(r"Process (\d+) has ([\d.]+) ([GM])iB")
_OWN = re.compile(r"this process has ([\d.]+) ([GM])iB")


def held_by_program(facts: Facts) -> float:
    """GiB that a program holds itself, as PyTorch's messages in the texts say; 0 if they do not."""
    found = [match for text in passages(facts) for form in (_OUT_OF_MEMORY, _NEW_FORM) for match in form.finditer(text)]
    return max((_gib(match["reserved"], match["reserved_unit"]) + _CONTEXT_GIB for match in found), default=0.0)


def _gib(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]


def one_rank_works(facts: Facts) -> Iterator[Finding]:
    """Some ranks ran into the timeout of a collective, and a progress bar shows what another one did meanwhile."""
    late = {int(match[1]) for text in passages(facts) for match in _TIMEOUT.finditer(text)}
    works = [match for text in passages(facts) for match in _WORK.finditer(text) if int(match["done"]) < 100]
    if late and works and sorted(late) != list(range(max(late) + 1)):
        progress = f"{works[-1]['what']} at {works[-1]['done']} %"
        words = f"ranks {', '.join(map(str, sorted(late)))} waited in a collective while another was still busy: {progress}"
        evidence = {"waiting": sorted(late), "work": works[-1]["what"]}
        yield facts.problems["rank-busy-before-collective"].found(words, evidence, confidence=Confidence.LIKELY)


def nearly_full_shared_memory(facts: Facts) -> Iterator[Finding]:
    """A program hangs or dies, and /dev/shm is nearly full."""
    size, free = known(lambda: facts.limits.shm_bytes, 0), known(lambda: facts.limits.shm_free_bytes, 0)
    told = any(re.search(r"(?i)dataloader|num_workers|hang|stuck|bus error|nccl", text) for text in passages(facts))
    if size and told and (64 << 20) < free < _SHARE_OF_SHM / 2 * size and not facts.shown.nccl_files:
        words = f"{free >> 20} of {size >> 20} MiB are free in /dev/shm"
        yield facts.problems["shm-too-small-for-dataloaders"].found(words, {"free_mib": free >> 20}, confidence=Confidence.LIKELY)


_OF_INSPECT = re.compile(r'"ShmSize": (\d+)')
_NEEDS = re.compile(r"(?i)data ?loader|num_workers|\bnccl\b|\bDDP\b|torchrun|multi-?gpu")
_FAILS = re.compile(r"(?i)\bhang|stuck|bus error|crash|\bfreez|\bdie[sd]?\b|killed")


def shared_memory_of_container(facts: Facts) -> Iterator[Finding]:
    """docker inspect shows the default size of /dev/shm, and loaders or NCCL hang."""
    for text in passages(facts):
        for match in _OF_INSPECT.finditer(text):
            size = int(match[1]) >> 20
            if size <= LITTLE_SHARED_MIB and _NEEDS.search(text) and _FAILS.search(text):
                words = f"docker inspect shows {size} MiB of shared memory (ShmSize) for the container"
                problem = replace(facts.problems["shm-too-small-for-dataloaders"], fixes=MORE_SHARED)
                yield problem.found(words, {"size_mib": size}, confidence=Confidence.LIKELY)
                return


MORE_SHARED = (
    Fix(
        "Start the container with more shared memory",
        "<docker> run <all_gpus> --shm-size=8g <image>",
        verify="df -h /dev/shm",
        engines=("docker", "podman"),
    ),
    Fix("In a compose file: set shm_size: 8gb for the service, or ipc: host"),
)
LITTLE_SHARED_MIB = 64  # Docker's default
_COMMIT = re.compile(r"(?m)^\s*CommitLimit:\s+(\d+) kB(?:\n.*){0,3}?\n\s*Committed_AS:\s+(\d+) kB")
_NEAR = 0.95


def strict_overcommit(facts: Facts) -> Iterator[Finding]:
    """With vm.overcommit_memory=2 the kernel refuses memory at CommitLimit, however much is free."""
    strict = known(lambda: facts.system.overcommit_mode) == STRICT
    for text in passages(facts) if strict else ():
        match = _COMMIT.search(text)
        if match and int(match[2]) > _NEAR * int(match[1]):
            used, limit = int(match[2]) >> 20, int(match[1]) >> 20
            words = f"vm.overcommit_memory is 2, and {used} of {limit} GiB that the kernel may promise are promised"
            problem = replace(facts.problems["host-memory-exhausted"], title=STRICT_TITLE, why=STRICT_WHY, fixes=STRICT_WAYS)
            yield problem.found(words, {"limit_gib": limit}, confidence=Confidence.LIKELY)
            return


STRICT = 2
STRICT_TITLE = "The kernel refuses memory because overcommitting is forbidden"
STRICT_WHY = (
    "With vm.overcommit_memory=2 all programs together may reserve no more than CommitLimit, and CUDA and Python reserve far "
    "more than they use. Requests fail although free shows memory."
)
STRICT_WAYS = (
    Fix(
        "Allow overcommitting, as by default, until the next boot",
        "sudo sysctl vm.overcommit_memory=0",
        undo="sudo sysctl vm.overcommit_memory=2",
        verify="grep -i commit /proc/meminfo",
        needs=("root",),
        kind="set",
        where="host",
    ),
    Fix(
        "Keep it: remove vm.overcommit_memory=2 from sysctl's files",
        "grep -rn overcommit /etc/sysctl.conf /etc/sysctl.d",
        kind="read",
    ),
)
RULES = (shared_memory_of_container, strict_overcommit, held_by_another, held_by_named, one_rank_works, nearly_full_shared_memory)
