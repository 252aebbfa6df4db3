"""Every measurement finished: none crashed, hung or stopped on an error.

What it means
Each measurement runs in its own process. If one is killed by a signal, never returns or is refused by the driver, real work
on this machine would fail in the same way.

How it is judged
How each process ended. A crash and a hang fail, with the step in which it happened and the stack of the process. A process
that was stopped from outside (SIGSTOP) warns. An error fails, with its own text; out of memory warns if other processes hold
the memory. The output of a failed measurement is judged as gpudoctor explain judges a text. A message, a variable that it names,
a limit, the kernel log or another finding of this machine that explains the failure is reported in its place.

Known exceptions
A measurement that was skipped, because something is not installed or the GPU is busy, is not a failure: its check gives the
reason.

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
from gpudoctor.judging.measured import failing
from gpudoctor.model import Action, Check, Finding, Problem, Skip, Status

AGAIN = "gpudoctor check --only <check>"
TYPES = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
LOG = look(
    "On the host: check the kernel log for driver messages (Xid)",
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
    title="A process on the GPU was killed by a signal",
    why="A library or the driver crashed, or the process was killed from outside. Other programs can crash in the same way.",
    action=Action.RESTART_APP,
    fixes=(
        look("Run it again: a repeated crash means a broken installation or broken hardware", AGAIN),
        LOG,
        kernel_log("Check whether the kernel killed it for lack of memory", "-iE 'killed process|out of memory' | tail"),
    ),
)
HUNG = Problem(
    id="measurement-hung",
    title="A process on the GPU hung and never finished",
    why="It was killed after many times its usual run time. The driver, the GPU or a link does not answer.",
    action=Action.RESET_GPU,
    fixes=(
        look("Run it again: a repeated hang means a broken driver or broken hardware", AGAIN),
        LOG,
        reset("Reset the GPU, once nothing uses it", gpu="<index>"),
    ),
)
STOPPED = Problem(
    id="measurement-stopped",
    title="A process on the GPU was stopped from outside (SIGSTOP)",
    why="A user, a debugger or a batch system that suspends jobs stopped it and did not let it continue.",
    action=Action.WATCH,
    fixes=(look("Find out what suspends processes here, then run it again", AGAIN),),
    status=Status.WARN,
)
FAILED = Problem(
    id="measurement-failed",
    title="A program on the GPU failed with an error",
    why="The driver or a library refused an operation that works on every healthy machine. The message is the error's own text.",
    action=Action.WATCH,
    fixes=(look("Run it alone and read its full output", AGAIN + " -v"), LOG),
    references=(TYPES,),
)
HOST_MEMORY = replace(
    FAILED,
    why="CUDA also reports out of memory when host memory cannot be locked for the GPU: too little of it is free, or a limit of "
    "the container or virtual machine prevents it.",
    fixes=(
        look("Show the host's memory and this container's limits", "free -h; cat /sys/fs/cgroup/memory.max; ulimit -l"),
        look("Measure again when more memory is free", AGAIN),
    ),
)
NO_MEMORY = Problem(
    id="measurement-out-of-memory",
    title="Too little GPU memory was free for a measurement",
    why="Other processes hold so much memory that too little is left even for a small program.",
    action=Action.WATCH,
    fixes=(
        look(
            "List the processes that hold it; stop one only with its owner's consent",
            "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
        ),
        look("Measure when the GPU is free", AGAIN),
    ),
    status=Status.WARN,
)
LAST_RESORTS = (CRASHED, HUNG, FAILED)
BY_STATUS = {"died": CRASHED, "timeout": HUNG, "stopped": STOPPED, "error": FAILED}


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.measured.plan["gpus"]:
        raise Skip("; ".join(facts.measured.not_measured.values()), facts.measured.plan["kind"])
    why = {failure: failing.explanation(facts, failed(failure)) for failure in facts.measured.failures}
    yield from failing.clues(why.values())
    alike: dict[tuple[int | None, str, str], list[Failure]] = {}
    for failure in why:
        alike.setdefault((failure.gpu, *essence(failure, why[failure].key)), []).append(failure)
    for failures in alike.values():
        yield failing.explained(found(facts, failures), why[failures[0]])


def failed(failure: Failure) -> failing.Failed:
    problem, because = meaning(failure)
    is_known = bool(because) or problem not in LAST_RESORTS
    return failing.Failed(failure.workload, failure.words, failure.signal, failure.recorded, is_known)


def essence(failure: Failure, why: str) -> tuple[str, str]:
    """A key for failures with one cause: all hangs share it, as do errors with the same explanation or CUDA name."""
    problem, because = meaning(failure)
    if because or problem in (HUNG, STOPPED):
        return problem.id, because
    code = CUDA_ERROR.search(failure.detail)
    return problem.id, why or (code[0] if code else failure.detail.partition(" in ")[0])


def found(facts: Facts, failures: Sequence[Failure]) -> Finding:
    """One finding for failures of the same kind."""
    first, rest = failures[0], [failure.workload for failure in failures[1:]]
    problem, because = meaning(first)
    where = "" if first.gpu is None else f" on GPU {first.gpu}"
    words = f"{first.workload}{where}: {first.detail}" + (f"; also {', '.join(rest)}" if rest else "")
    evidence = {
        "check": facts.measured.plan["workloads"].get(first.workload, "measurements"),
        "index": first.gpu if first.gpu is not None else ",".join(map(str, facts.measured.plan["gpus"])),
        "last_words": " | ".join(first.prints.splitlines()[-LAST_LINES:]),
        **({"recorded": " | ".join(first.recorded.splitlines())} if first.recorded else {}),
    }
    return replace(problem.found(words, evidence, first.gpu, partial=True), because=because)


def meaning(failure: Failure) -> tuple[Problem, str]:
    """The problem, and the id of another check's problem that explains it, or ""."""
    problem = BY_STATUS[failure.status]
    if problem is HUNG and failure.gpu is None:
        return HUNG, "nccl-p2p-hang-acs-iommu"
    if problem is FAILED and OUT_OF_MEMORY.search(failure.detail):
        return (HOST_MEMORY, "") if OF_THE_HOST.search(failure.detail) else (NO_MEMORY, "other-process-using-gpu")
    return problem, "memory-errors-under-load" if ECC.search(failure.detail) else ""


def summary(facts: Facts) -> str:
    alone = "".join(f"; {why}" for why in facts.measured.not_measured.values())
    cut = f"; {len(facts.measured.cut)} more are missing because the run was cut short" if facts.measured.cut else ""
    return f"{facts.measured.count} measurements on {len(facts.measured.plan['gpus'])} GPUs{alone}{cut}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(CRASHED, HUNG, STOPPED, FAILED, NO_MEMORY, *failing.PROBLEMS),
    needs=("cuda-context",),
    level="standard",
)
