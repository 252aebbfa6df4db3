"""No program has been stopped by an error on a GPU since the boot.

What it means
A program that reads a wrong address or runs an illegal instruction on the GPU is stopped, and the driver logs it as an Xid
(13, 31, 69). In the program it is "CUDA error: an illegal memory access was encountered". The GPU goes on.

How it is judged
The Xids of the kernel log for which NVIDIA's catalogue says: restart the application. These warn, since the cause is nearly
always the program. Xid 45 is not counted, nor is 43 where another one came with it. What only an earlier boot had warns too.

Known exceptions
Where the same GPU reported an error of its hardware or memory, that is the cause, and programs are not blamed. The log is
often closed to users, ends at the last boot, and under WSL is in Windows.

References
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.xids import GpuXids, is_in_windows, log_span, past_xids_by_gpu, xids_by_gpu
from gpudoctor.fixes.common import look, vendor_test
from gpudoctor.judging.driver import history
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

CATALOG = ("https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",)
RESTART = Fix("Start the program again; the GPU is usable")
SYNCHRONOUS = Fix(
    "In Python: let the error be raised where it happens (slow: unset it afterwards)",
    "export CUDA_LAUNCH_BLOCKING=1",
    where="shell",
)
SANITIZE = Fix("If it happens again: let the sanitizer find the kernel", "compute-sanitizer --tool memcheck ./your_program")
TEST = vendor_test("If good programs fail on this GPU alone: test it", "-r 3", risk="disruptive")
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
    look("If it happens again: look for errors of the PCIe link", "nvidia-smi -q -i <address> | grep -i replay"),
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
PROBLEMS = {problem.id: problem for problem in (EXCEPTION, PUSH_BUFFER, CLASS_ERROR, APPLICATION_ERROR)}


def judge(facts: Facts) -> Iterator[Finding]:
    if is_in_windows(facts):
        raise Skip("under WSL the driver's messages are in Windows")
    present = xids_by_gpu(facts)
    for gpu in present:
        for problem, codes in problems_of(gpu).items():
            yield problem.found(gpu.words(codes), gpu.evidence(codes), gpu.index, confidence(codes))
    for past in past_xids_by_gpu(facts):
        if not any(gpu.pci == past.pci for gpu in present):
            for problem, codes in problems_of(past).items():
                told = history.before(problem, past, codes)
                yield told.problem.found(past.words(codes) + told.words, past.evidence(codes), past.index, confidence(codes))


def problems_of(gpu: GpuXids) -> dict[Problem, list[int]]:
    """What stopped programs on a GPU that is not broken itself."""
    problems: dict[Problem, list[int]] = {}
    if not any(is_of_the_gpu(code) for code in gpu.codes):
        for code in gpu.faults:
            known = knowledge.xid(code)
            problem = PROBLEMS.get(known.problem or "") if known else None
            if problem:
                problems.setdefault(problem, []).append(code)
    return problems


def confidence(codes: Iterable[int]) -> Confidence:
    """An echo that stands alone has lost what it echoes."""
    rows = [knowledge.xid(code) for code in codes]
    return Confidence.LIKELY if all(row and row.follows for row in rows) else Confidence.CONFIRMED


def is_of_the_gpu(code: int) -> bool:
    known = knowledge.xid(code)
    return known is not None and (known.severity == "fatal" or code == 94)


def summary(facts: Facts) -> str:
    return f"no program was stopped {log_span(facts)}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=tuple(PROBLEMS.values()),
    needs=("gpu-on-bus",),
)
