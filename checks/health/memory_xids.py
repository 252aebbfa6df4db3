"""No GPU has reported an uncorrectable memory error since boot.

What it means
ECC corrects single-bit errors. An error that it cannot correct is written to the kernel log: a double-bit error (Xid 48), a
bad row marked for replacement by a spare one (63), no spare row left (64), and whether the error affected one program (94) or
all (95).

How it is judged
Reads the Xids of the kernel log. For one bad row the driver writes several of them; the most serious one is reported, in the
order 64, 95, 140, 48, 94, 63. If the driver asked for a recovery action (154) and now asks for none, the error is over and
only warns. If the driver asks for a recovery action, that action is the fix. A board whose error comes back after a reset or
in another boot has to be replaced. An error seen only in an earlier boot of the log warns.

Known exceptions
Xid 63 is over as soon as NVML reports that no row or page is pending. If a GPU has fallen off the bus (79), its other Xids
are ignored. The kernel log is often not readable for users, goes back only to the last boot, and under WSL it is in Windows.
The check ecc then reads the counters.

References
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
https://github.com/stas00/ml-engineering/blob/744d01e/compute/accelerator/nvidia/debug.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.xids import (
    FALLEN_OFF,
    MEMORY_ERRORS,
    GpuXids,
    is_in_windows,
    is_row_pending,
    log_span,
    past_xids_by_gpu,
    xids_by_gpu,
)
from gpudoctor.fixes.common import reboot, report_to_vendor, reset, vendor_test
from gpudoctor.judging.driver import history
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

REFERENCES = (
    "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    "https://github.com/stas00/ml-engineering/blob/744d01e/compute/accelerator/nvidia/debug.md",
)
LOOK = "nvidia-smi -q -i <address> -d ECC,ROW_REMAPPER"
RESET = reset(verify=LOOK)
REBOOT = reboot("If the reset is refused: reboot", LOOK)
TEST = vendor_test("If the error comes back: test the memory", "-r 3", risk="disruptive")
HOST = Fix("Ask the owner of the host to reset the GPU: this cannot be done from inside a container", on=("container",))

REMAP_FAILED = Problem(
    id="xid-64-row-remap-failure",
    title="A bad row of GPU memory could not be replaced (Xid 64)",
    why="The memory bank has no spare rows left, or the repair could not be recorded. The board is due for replacement.",
    action=Action.REPLACE_HARDWARE,
    fixes=(
        vendor_test("Take the GPU out of service and confirm the error", "-r 4", risk="disruptive", verify=LOOK),
        report_to_vendor("Collect NVIDIA's report and ask the vendor for a replacement"),
        HOST,
    ),
    references=REFERENCES,
)
UNCONTAINED = Problem(
    id="xid-95-uncontained-ecc",
    title="A GPU memory error affected every program on the GPU (Xid 95)",
    why="The uncorrectable error could not be contained. The GPU must be reset before new work.",
    action=Action.RESET_GPU,
    fixes=(RESET, REBOOT, TEST, HOST),
    references=REFERENCES,
)
UNRECOVERED = Problem(
    id="xid-140-ecc-unrecovered",
    title="The GPU did not recover from an ECC error (Xid 140)",
    why="The firmware did not handle an uncorrectable error. Results may be wrong until the GPU is reset.",
    action=Action.RESET_GPU,
    fixes=(RESET, REBOOT, TEST, HOST),
    references=REFERENCES,
)
DOUBLE_BIT = Problem(
    id="xid-48-double-bit-ecc",
    title="GPU memory lost data: uncorrectable ECC error (Xid 48)",
    why="Two bits of a word were wrong, which ECC detects but cannot correct. A reset replaces the bad row with a spare one.",
    action=Action.RESET_GPU,
    fixes=(RESET, REBOOT, TEST, HOST),
    references=REFERENCES,
)
CONTAINED = Problem(
    id="xid-94-contained-ecc",
    title="A GPU memory error killed one program (Xid 94)",
    why="The error was uncorrectable but contained: no other program was hit. A reset replaces the bad row with a spare one.",
    action=Action.RESTART_APP,
    fixes=(
        Fix("Restart the program that was killed", risk="safe"),
        replace(RESET, title="When convenient: stop what uses the GPU, then reset it"),
        REBOOT,
        HOST,
    ),
    references=REFERENCES,
    status=Status.WARN,
)
REMAP_PENDING = Problem(
    id="xid-63-row-remap-pending",
    title="A bad row of GPU memory is waiting for a reset (Xid 63)",
    why="The repair is recorded and takes effect when the GPU is reset. Running work is safe; the board need not be replaced.",
    action=Action.RESET_GPU,
    fixes=(replace(RESET, title="When convenient: stop what uses the GPU, then reset it"), REBOOT, HOST),
    references=REFERENCES,
    status=Status.WARN,
)
PROBLEMS = {
    64: REMAP_FAILED,
    95: UNCONTAINED,
    140: UNRECOVERED,
    48: DOUBLE_BIT,
    171: DOUBLE_BIT,
    172: DOUBLE_BIT,
    94: CONTAINED,
    63: REMAP_PENDING,
}
LOST_DATA = (95, 140, 48, 171, 172)  # one memory fault, reported in several ways


def judge(facts: Facts) -> Iterator[Finding]:
    if is_in_windows(facts):
        raise Skip("under WSL, the driver's messages are in Windows")
    present = {}
    for gpu in xids_by_gpu(facts):
        present[gpu.pci] = worst_of(gpu)
        yield from judge_gpu(gpu)
    for past in past_xids_by_gpu(facts):
        code = worst_of(past)
        if code not in (None, 63) and not present.get(past.pci):
            told = history.before(PROBLEMS[code], past, kin_of(code))
            yield told.problem.found(past.words([code]) + told.words, past.evidence([code]), past.index)


def worst_of(gpu: GpuXids) -> int | None:
    return None if FALLEN_OFF in gpu.codes else next((code for code in MEMORY_ERRORS if code in gpu.codes), None)


def kin_of(code: int) -> tuple[int, ...]:
    return LOST_DATA if code in LOST_DATA else (code,)


def judge_gpu(gpu: GpuXids) -> Iterator[Finding]:
    worst = worst_of(gpu)
    if worst is None or (worst == 63 and gpu.gpu and is_activated(gpu.gpu)):
        return
    problem, message = PROBLEMS[worst], gpu.words([worst])
    told = history.again(problem, gpu, kin_of(worst), is_memory=True)
    if worst != 63 and gpu.gpu and is_row_pending(gpu.gpu):
        message += "; a bad row is waiting to be replaced"
    if told.words:
        problem, message = told.problem, message + told.words
    elif gpu.recovered and problem.action is Action.RESET_GPU:
        problem, message = replace(problem, status=Status.WARN), message + "; the driver no longer asks for a recovery action"
    if gpu.recovery not in (None, "none"):
        problem, message = as_driver_asks(problem, gpu.recovery), f"{message}; the driver asks for {gpu.recovery}"
    yield problem.found(message, gpu.evidence([worst]), gpu.index)


def as_driver_asks(problem: Problem, recovery: str) -> Problem:
    """The problem with the recovery that the driver asks for as its action and first fix."""
    if problem.action is Action.REPLACE_HARDWARE:
        return problem
    reboots = "reboot" in recovery
    first = (replace(REBOOT, title="Reboot"),) if reboots else (RESET, REBOOT)
    others = tuple(fix for fix in problem.fixes if fix.kind != "reset" and not fix.reboot)
    action = Action.REBOOT if reboots else Action.RESET_GPU
    return replace(problem, status=Status.FAIL, action=action, fixes=(*first, *others))


def is_activated(gpu: Gpu) -> bool:
    """Whether NVML reports that no row and no page is waiting for a reset."""
    try:
        return not gpu.remapped_rows.pending
    except Skip:  # before Ampere
        pass
    return known(lambda: not gpu.retired_pages_pending, False)


def summary(facts: Facts) -> str:
    if any(xid.code == 63 for xid in facts.kernel_log.xids):
        return f"the bad rows reported {log_span(facts)} have been replaced"
    return f"no uncorrectable memory errors {log_span(facts)}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=tuple(dict.fromkeys(PROBLEMS.values())),
    needs=("gpu-on-bus",),
    tags=("hardware", "memory"),
)
