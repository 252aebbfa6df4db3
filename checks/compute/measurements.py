"""Every measurement came to its end: none crashed, hung or stopped on an error.

What it means
Each measurement runs in a process of its own. One that is killed by a signal, never comes back or is refused by the driver is a
finding about this machine: real work would fare as badly.

How it is judged
How each process ended. A crash and a hang fail, with the step in which it happened and the stack of the process. A process that
somebody stopped (SIGSTOP) warns. An error fails, in its own words; out of memory warns where others hold the memory.

Known exceptions
A measurement that was skipped, because something is not installed or the GPU is busy, is no failure: its check says why.

References
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.measured import Failure
from gpudoctor.fixes.common import kernel_log, look, reset
from gpudoctor.model import Action, Check, Finding, Problem, Skip, Status

AGAIN = "gpudoctor check --only <check>"
TYPES = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
LOG = look(
    "Look for the driver's words about it (Xid), on the host",
    "sudo dmesg | grep -iE 'nvrm|xid' | tail -n 20",
    root=True,
    where="host",
)
LAST_LINES = 12
OUT_OF_MEMORY = re.compile(
    r"CUDA_ERROR_OUT_OF_MEMORY | OutOfMemoryError | out\ of\ memory | cudaErrorMemoryAllocation",
    re.IGNORECASE | re.VERBOSE,
)
OF_THE_HOST = re.compile(r"cuMem(?:Host|AllocHost)|cudaHostAlloc|page-locked|pin(?:ned)?[_ ]memory", re.IGNORECASE)
ECC = re.compile(r"ECC_UNCORRECTABLE|CUDA_ERROR_CONTAINED|uncorrectable ECC error", re.IGNORECASE)
CUDA_ERROR = re.compile(r"CUDA_ERROR_\w+")

CRASHED = Problem(
    id="measurement-crashed",
    title="A process that worked on the GPU was killed by a signal",
    why="A library or the driver crashed, or something ended the process from outside. Other programs can crash there too.",
    action=Action.RESTART_APP,
    fixes=(
        look("Run it again: a crash that comes back is a broken installation or broken hardware", AGAIN),
        LOG,
        kernel_log("See whether the kernel killed it for lack of memory", "-iE 'killed process|out of memory' | tail"),
    ),
)
HUNG = Problem(
    id="measurement-hung",
    title="A process that worked on the GPU never came to its end",
    why="It was killed after many times of what it usually takes. The driver, the GPU or a link does not answer.",
    action=Action.RESET_GPU,
    fixes=(
        look("Run it again: a hang that comes back is a broken driver or broken hardware", AGAIN),
        LOG,
        reset("Reset the GPU, once nothing works on it", gpu="<index>"),
    ),
)
STOPPED = Problem(
    id="measurement-stopped",
    title="A process that worked on the GPU was stopped from outside (SIGSTOP)",
    why="Somebody or something, such as a batch system that suspends jobs or a debugger, stopped it and did not let it go on.",
    action=Action.WATCH,
    fixes=(look("Find out who suspends processes here, then run it again", AGAIN),),
    status=Status.WARN,
)
FAILED = Problem(
    id="measurement-failed",
    title="Work on the GPU ended with an error",
    why="The driver or a library refused an operation that every healthy machine can do. The error's own words are the message.",
    action=Action.WATCH,
    fixes=(look("Run it alone, and read all of its words", AGAIN + " -v"), LOG),
    references=(TYPES,),
)
HOST_MEMORY = replace(
    FAILED,
    why="CUDA calls it out of memory, too, when the host's memory cannot be locked for the GPU: too little of it is free, or a "
    "limit of the container or of a virtual machine is in the way.",
    fixes=(
        look("See how much the host has, and what this container may have", "free -h; cat /sys/fs/cgroup/memory.max; ulimit -l"),
        look("Measure again when more is free", AGAIN),
    ),
)
NO_MEMORY = Problem(
    id="measurement-out-of-memory",
    title="Work on the GPU found too little of its memory free",
    why="Other processes hold so much of the memory that even a small program finds too little.",
    action=Action.WATCH,
    fixes=(
        look(
            "See who holds it; stop it only with its owner's consent",
            "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
        ),
        look("Measure when the GPU is free", AGAIN),
    ),
    status=Status.WARN,
)
BY_STATUS = {"died": CRASHED, "timeout": HUNG, "stopped": STOPPED, "error": FAILED}


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.measured.plan["gpus"]:
        raise Skip("; ".join(facts.measured.not_measured.values()), facts.measured.plan["kind"])
    alike: dict[tuple[int | None, str, str], list[Failure]] = {}
    for failure in facts.measured.failures:
        alike.setdefault((failure.gpu, *essence(failure)), []).append(failure)
    for failures in alike.values():
        yield found(facts, failures)


def essence(failure: Failure) -> tuple[str, str]:
    """What is the same in failures of one cause: hangs are alike, and errors that CUDA calls by the same name."""
    problem, because = meaning(failure)
    if because or problem in (HUNG, STOPPED):
        return problem.id, because
    code = CUDA_ERROR.search(failure.detail)
    return problem.id, code[0] if code else failure.detail.partition(" in ")[0]


def found(facts: Facts, failures: Sequence[Failure]) -> Finding:
    """One finding for what ended in the same way."""
    first, rest = failures[0], [failure.workload for failure in failures[1:]]
    problem, because = meaning(first)
    where = "" if first.gpu is None else f" on GPU {first.gpu}"
    words = f"{first.workload}{where}: {first.detail}" + (f"; likewise {', '.join(rest)}" if rest else "")
    evidence = {
        "check": facts.measured.plan["workloads"].get(first.workload, "measurements"),
        "index": first.gpu if first.gpu is not None else ",".join(map(str, facts.measured.plan["gpus"])),
        "last_words": " | ".join(first.prints.splitlines()[-LAST_LINES:]),
    }
    return replace(problem.found(words, evidence, first.gpu, partial=True), because=because)


def meaning(failure: Failure) -> tuple[Problem, str]:
    """The problem, and another check's that explains it."""
    problem = BY_STATUS[failure.status]
    if problem is HUNG and failure.gpu is None:
        return HUNG, "nccl-p2p-hang-acs-iommu"
    if problem is FAILED and OUT_OF_MEMORY.search(failure.detail):
        return (HOST_MEMORY, "") if OF_THE_HOST.search(failure.detail) else (NO_MEMORY, "other-process-using-gpu")
    return problem, "memory-errors-under-load" if ECC.search(failure.detail) else ""


def summary(facts: Facts) -> str:
    alone = "".join(f"; {why}" for why in facts.measured.not_measured.values())
    cut = f"; {len(facts.measured.cut)} more are missing, because the run was cut off" if facts.measured.cut else ""
    return f"{facts.measured.count} measurements on {len(facts.measured.plan['gpus'])} GPUs{alone}{cut}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(CRASHED, HUNG, STOPPED, FAILED, NO_MEMORY),
    needs=("cuda-context",),
    level="standard",
)
