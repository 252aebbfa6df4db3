"""No program has been stopped by an error on a GPU since the boot.

What it means
A program that reads a wrong address or runs an illegal instruction on the GPU is stopped, and the driver logs it as an Xid
(13, 31, 69). In the program it is "CUDA error: an illegal memory access was encountered". The GPU goes on.

How it is judged
The Xids of the kernel log for which NVIDIA's catalogue says: restart the application. These warn, since the cause is nearly
always the program. Xid 43 and 45, which follow, are not counted.

Known exceptions
Where the same GPU reported an error of its hardware or memory, that is the cause, and programs are not blamed. The log is
often closed to users, ends at the last boot, and under WSL is in Windows.

References
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.xids import MEMORY_ERRORS, GpuXids, log_span, xids_by_gpu
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

CATALOG = ("https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",)
RESTART = Fix("Start the program again; the GPU is usable")
SYNCHRONOUS = Fix(
    "In Python: let the error be raised where it happens (slow: unset it afterwards)",
    "export CUDA_LAUNCH_BLOCKING=1",
)
SANITIZE = Fix("If it happens again: let the sanitizer find the kernel", "compute-sanitizer --tool memcheck ./your_program")
TEST = Fix(
    "If good programs fail on this GPU alone: test it", "dcgmi diag -r 3", risk="disruptive", needs=("drain",), on=("host",)
)
UPDATE = Fix("If it happens again: update the driver to the newest release of its branch", on=("host",))


def problem(id: str, title: str, why: str, *fixes: Fix) -> Problem:
    return Problem(id, title, why, Action.RESTART_APP, (RESTART, *fixes), CATALOG, Status.WARN)


EXCEPTION = problem(
    "xid-13-graphics-exception",
    "A program used a wrong address or instruction on the GPU (Xid 13)",
    "Nearly always a bug of the program's kernels. Only where good programs fail on this one GPU alone is it the hardware.",
    SYNCHRONOUS,
    SANITIZE,
    TEST,
)
PUSH_BUFFER = problem(
    "xid-32-pbdma",
    "The GPU was given a corrupted stream of commands (Xid 32)",
    "A bug of the program or driver. Where it repeats, the PCIe link corrupts data: riser, slot, overclocking.",
    UPDATE,
    Fix("If it happens again: look for errors of the PCIe link", "nvidia-smi -q -i <address> | grep -i replay"),
)
CLASS_ERROR = problem(
    "xid-69-class-error",
    "A program or library sent the GPU an invalid command (Xid 69)",
    "A bug of the program, of its CUDA libraries or of the driver; the hardware only if one board alone is hit.",
    UPDATE,
    SANITIZE,
)
APPLICATION_ERROR = problem(
    "xid-application-error",
    "An error on the GPU stopped a program",
    "For this Xid NVIDIA's catalogue says: restart the application. Xid 31 is the GPU's segmentation fault.",
    SYNCHRONOUS,
    SANITIZE,
    TEST,
)
OWN = {13: EXCEPTION, 32: PUSH_BUFFER, 69: CLASS_ERROR}


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.system.wsl:
        raise Skip("under WSL the driver's messages are in Windows")
    for gpu in xids_by_gpu(facts):
        yield from judge_gpu(gpu)


def judge_gpu(gpu: GpuXids) -> Iterator[Finding]:
    if any(is_of_the_gpu(code) for code in gpu.codes):
        return
    problems: dict[Problem, list[int]] = {}
    for code in filter(is_of_a_program, gpu.codes):
        problems.setdefault(OWN.get(code, APPLICATION_ERROR), []).append(code)
    for problem, codes in problems.items():
        yield problem.found(gpu.words(codes), gpu.evidence(codes), gpu.index)


def is_of_a_program(code: int) -> bool:
    known = knowledge.xid(code)
    return known is not None and known.action == "RESTART_APP" and known.severity == "error" and code not in MEMORY_ERRORS


def is_of_the_gpu(code: int) -> bool:
    known = knowledge.xid(code)
    return known is not None and (known.severity == "fatal" or code == 94)


def summary(facts: Facts) -> str:
    return f"no program was stopped {log_span(facts)}"


CHECK = Check(
    judge=judge,
    summary=summary,
    area="health",
    problems=(EXCEPTION, PUSH_BUFFER, CLASS_ERROR, APPLICATION_ERROR),
    needs=("gpu-on-bus",),
)
