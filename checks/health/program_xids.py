"""No program has been stopped by an error on a GPU since boot.

What it means
The driver stops a program that reads a wrong address or runs an illegal instruction on the GPU, and logs an Xid (13, 31, 69).
The program sees "CUDA error: an illegal memory access was encountered". The GPU stays usable.

How it is judged
Reads the Xids of the kernel log for which NVIDIA's catalogue says: restart the application. They warn, as the cause is nearly
always the program. Xid 45 is not counted, and Xid 43 is not counted if another Xid came with it. An error seen only in an
earlier boot warns too. The same error on several GPUs points to the program; if three or more processes met it on a single GPU,
it points to that GPU.

Known exceptions
If the same GPU reported a hardware or memory error, that error is the cause and programs are not blamed. The kernel log is
often not readable for users, goes back only to the last boot, and under WSL it is in Windows.

References
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.xids import GpuXids, is_in_windows, log_span, past_xids_by_gpu, xids_by_gpu
from gpudoctor.fixes.common import look, vendor_test
from gpudoctor.judging.driver import history
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

CATALOG = ("https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",)
RESTART = Fix("Restart the program; the GPU is usable")
SYNCHRONOUS = Fix(
    "In Python: make the call that fails raise the error (slow: unset it afterwards)",
    "export CUDA_LAUNCH_BLOCKING=1",
    where="shell",
)
SANITIZE = Fix("If it happens again: find the kernel with compute-sanitizer", "compute-sanitizer --tool memcheck ./your_program")
TEST = vendor_test("If correct programs fail only on this GPU: test it", "-r 3", risk="disruptive")
UPDATE = Fix("If it happens again: update the driver to the newest release of its branch", on=("host",))


def problem(id: str, title: str, why: str, *fixes: Fix) -> Problem:
    return Problem(id, title, why, Action.RESTART_APP, (RESTART, *fixes), CATALOG, Status.WARN)


EXCEPTION = problem(
    "xid-13-graphics-exception",
    "A program used an invalid address or instruction on a GPU (Xid 13)",
    "This is nearly always a bug in the program's kernels. It is the hardware only if correct programs fail on this GPU alone.",
    SYNCHRONOUS,
    SANITIZE,
    TEST,
)
PUSH_BUFFER = problem(
    "xid-32-pbdma",
    "The GPU received a corrupted command stream (Xid 32)",
    "This is a bug in the program or driver. If it repeats, the PCIe link corrupts data: riser, slot or overclocking.",
    UPDATE,
    look("If it happens again: check the PCIe link for errors", "nvidia-smi -q -i <address> | grep -i replay"),
)
CLASS_ERROR = problem(
    "xid-69-class-error",
    "A program or library sent the GPU an invalid command (Xid 69)",
    "This is a bug in the program, its CUDA libraries or the driver. It is the hardware only if a single board is affected.",
    UPDATE,
    SANITIZE,
)
APPLICATION_ERROR = problem(
    "xid-application-error",
    "An error on the GPU stopped a program",
    "NVIDIA's catalogue says to restart the application after this Xid. Xid 31 is the GPU's segmentation fault.",
    SYNCHRONOUS,
    SANITIZE,
    TEST,
)
LOCATED = "kernel-error-located"  # compute-sanitizer named the kernel of the program
SEVERAL = 3  # processes with the same error on one GPU
PROBLEMS = {problem.id: problem for problem in (EXCEPTION, PUSH_BUFFER, CLASS_ERROR, APPLICATION_ERROR)}


def judge(facts: Facts) -> Iterator[Finding]:
    if is_in_windows(facts):
        raise Skip("under WSL, the driver's messages are in Windows")
    present = xids_by_gpu(facts)
    for gpu in present:
        for problem, codes in problems_of(gpu).items():
            words = gpu.words(codes) + where_else(gpu, codes, present)
            found = problem.found(words, gpu.evidence(codes), gpu.index, confidence(codes))
            yield replace(found, because=LOCATED)
    for past in past_xids_by_gpu(facts):
        if not any(gpu.pci == past.pci for gpu in present):
            for problem, codes in problems_of(past).items():
                before = history.before(problem, past, codes)
                yield before.problem.found(past.words(codes) + before.words, past.evidence(codes), past.index, confidence(codes))


def where_else(gpu: GpuXids, codes: Sequence[int], gpus: Sequence[GpuXids]) -> str:
    """What repeats mean: the same error on several GPUs is the program's; of several programs on one GPU only, the GPU's."""
    others = [other.name for other in gpus if other is not gpu and set(codes) & set(other.codes)]
    programs = {xid.pid for xid in gpu.all if xid.code in codes and xid.pid is not None}
    if others:
        return f"; {' and '.join(others)} did too, which points to the program"
    if len(programs) >= SEVERAL:
        return f"; {len(programs)} processes met it on this GPU and on no other, so test the GPU"
    return ""


def problems_of(gpu: GpuXids) -> dict[Problem, list[int]]:
    """The problems that stopped programs, each with its codes; empty if the GPU itself is broken."""
    problems: dict[Problem, list[int]] = {}
    if not any(is_of_the_gpu(code) for code in gpu.codes):
        for code in gpu.faults:
            known = knowledge.xid(code)
            problem = PROBLEMS.get(known.problem or "") if known else None
            if problem:
                problems.setdefault(problem, []).append(code)
    return problems


def confidence(codes: Iterable[int]) -> Confidence:
    """LIKELY if all codes only ever follow other errors, which the log has then lost."""
    rows = [knowledge.xid(code) for code in codes]
    return Confidence.LIKELY if all(row and row.follows for row in rows) else Confidence.CONFIRMED


def is_of_the_gpu(code: int) -> bool:
    known = knowledge.xid(code)
    return known is not None and (known.severity == "fatal" or code == 94)


def summary(facts: Facts) -> str:
    return f"no program stopped by a GPU error {log_span(facts)}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=tuple(PROBLEMS.values()),
    needs=("gpu-on-bus",),
)
