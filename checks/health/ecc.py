"""GPU memory has lost no data, and ECC is on where it should be.

What it means
ECC corrects single-bit errors and reports errors that it cannot correct. DRAM repairs itself with spare rows. Caches and
registers (SRAM) cannot, so a board whose SRAM errors add up has to be replaced.

How it is judged
Uncorrectable errors since the driver was loaded (volatile counters) fail. SRAM fails if NVML reports that its threshold is
exceeded, or more than four uncorrectable errors over its lifetime. Corrected errors warn above Azure's limits: 20 million, or
10 thousand in SRAM, since the driver was loaded. ECC that is off warns on a data-centre GPU. A mode change that is pending
until a reset warns on every GPU.

Known exceptions
Corrected errors below the limit, and uncorrectable DRAM errors of the past, are not reported. If the kernel log has the error
as an Xid, memory-xids reports it. GeForce and workstation GPUs have ECC off by default, or do not have ECC.

References
https://github.com/stas00/ml-engineering/blob/744d01e/compute/accelerator/nvidia/debug.md
https://github.com/Azure/azurehpc-health-checks/blob/main/conf/nd96isr_h100_v5.conf
https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_errors.h
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.xids import MEMORY_ERRORS, is_row_pending, xid_codes
from gpudoctor.fixes.common import ASK_OWNER_OF_GPU, look, reboot, report_to_vendor, reset, reset_by, vendor_test
from gpudoctor.model import Action, Check, Finding, Problem, Skip, Status, for_each

DEBUG = "https://github.com/stas00/ml-engineering/blob/744d01e/compute/accelerator/nvidia/debug.md"
AZURE = "https://github.com/Azure/azurehpc-health-checks/blob/main/conf/nd96isr_h100_v5.conf"
DCGM = "https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_errors.h"
CORRECTED_FLOOR = 20_000_000
CORRECTED_SRAM_FLOOR = 10_000
UNCORRECTABLE_SRAM_LIMIT = 4
ROW_MARKED = 63

LOOK = "nvidia-smi -q -i <address> -d ECC"
RESET = reset(verify=LOOK)
TEST = vendor_test("If the errors come back: test the memory", "-r 3", risk="disruptive")
REPORT = report_to_vendor("Collect NVIDIA's report and ask the vendor for a replacement")
HOST = ASK_OWNER_OF_GPU

UNCORRECTED = Problem(
    id="ecc-uncorrected-errors",
    title="GPU memory lost data since the driver was loaded",
    why="ECC found errors that it could not correct; programs that used that memory failed. A reset activates spare rows.",
    action=Action.RESET_GPU,
    unfit=True,
    fixes=(RESET, TEST, HOST),
    references=(DEBUG, DCGM),
)
SRAM = Problem(
    id="sram-errors-need-replacement",
    title="The GPU's caches have errors: the board is due for replacement",
    why="SRAM has no spare rows. NVIDIA's partners replace a board with this many uncorrectable errors.",
    action=Action.REPLACE_HARDWARE,
    unfit=True,
    fixes=(REPORT, TEST, HOST),
    references=(DEBUG,),
)
CORRECTED = Problem(
    id="ecc-corrected-errors-high",
    title="ECC corrects unusually many errors on this GPU",
    why="Results are correct, but this many corrected errors precede uncorrectable ones.",
    action=Action.WATCH,
    fixes=(replace(TEST, title="Test the memory"), look("Watch the error counters", LOOK), HOST),
    references=(AZURE,),
    status=Status.WARN,
)
MODE_PENDING = Problem(
    id="ecc-mode-change-pending",
    title="An ECC mode change is pending until the next reset",
    why="The ECC mode was changed. The change takes effect at the next GPU reset or reboot.",
    action=Action.RESET_GPU,
    fixes=(RESET, reboot(verify=LOOK), HOST),
    references=(DEBUG,),
    status=Status.WARN,
)
DISABLED = Problem(
    id="ecc-disabled",
    title="ECC is off on a data-centre GPU",
    why="Memory errors go unnoticed and corrupt results. On HBM, ECC costs no memory and no speed.",
    action=Action.FIX_CONFIG,
    fixes=(
        reset_by(
            "Enable ECC, then reset the GPU",
            "sudo nvidia-smi -i <address> -e 1 && sudo nvidia-smi --gpu-reset -i <address>",
            verify=LOOK,
        ),
        HOST,
    ),
    references=(DEBUG,),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    # Asked one at a time: a driver may support one counter and not the other.
    questions = [(question, gpu) for gpu in facts.nvml.reachable.values() for question in QUESTIONS]
    logged = None
    for finding in for_each(questions, lambda pair: pair[0](pair[1])):
        if finding.problem is UNCORRECTED and is_logged(facts, facts.nvml.gpus[finding.gpu or 0]):
            logged = finding
        else:
            yield finding
    if logged:
        raise Skip(f"{logged.message}; the kernel log has the Xid: see memory-xids")


def is_logged(facts: Facts, gpu: Gpu) -> bool:
    return bool(xid_codes(facts, gpu) & set(MEMORY_ERRORS) - {ROW_MARKED})


def judge_mode(gpu: Gpu) -> Iterator[Finding]:
    mode = gpu.ecc_mode
    board = knowledge.gpu_by_name(gpu.name)
    if mode.pending != mode.current:
        now, then = ("on", "off") if mode.current else ("off", "on")
        yield MODE_PENDING.found(
            f"GPU {gpu.index}: ECC is {now} and will be {then} after the next reset", address(gpu), gpu.index
        )
    elif not mode.current and board and board.ecc == "default on":
        yield DISABLED.found(f"GPU {gpu.index} ({gpu.name}): ECC is off", address(gpu), gpu.index)


def judge_uncorrected(gpu: Gpu) -> Iterator[Finding]:
    count = gpu.ecc_volatile_uncorrected
    if count:
        evidence = {**address(gpu), "uncorrected": count, **corrected(gpu)}
        words = f"GPU {gpu.index}: uncorrectable errors since the driver was loaded: {count}"
        words += "; a bad row is waiting to be replaced by the reset" * is_row_pending(gpu)
        yield UNCORRECTED.found(words, evidence, gpu.index)


def corrected(gpu: Gpu) -> dict[str, int]:
    """The corrected errors, if NVML reports them."""
    return known(lambda: {"corrected": gpu.ecc_volatile_corrected}, {})


def judge_sram(gpu: Gpu) -> Iterator[Finding]:
    status = gpu.sram_status
    if status.threshold_exceeded or status.aggregate_uncorrected > UNCORRECTABLE_SRAM_LIMIT:
        words = (
            "above the threshold"
            if status.threshold_exceeded
            else f"a board with more than {UNCORRECTABLE_SRAM_LIMIT} is due for replacement"
        )
        evidence = {**address(gpu), "uncorrected": status.aggregate_uncorrected, "by_unit": status.sources}
        yield SRAM.found(
            f"GPU {gpu.index}: {status.aggregate_uncorrected} uncorrectable SRAM errors over its lifetime, {words}",
            evidence,
            gpu.index,
        )


def judge_corrected(gpu: Gpu) -> Iterator[Finding]:
    yield from too_many(gpu, gpu.ecc_volatile_corrected, CORRECTED_FLOOR, "errors")


def judge_corrected_sram(gpu: Gpu) -> Iterator[Finding]:
    yield from too_many(gpu, gpu.sram_status.volatile_corrected, CORRECTED_SRAM_FLOOR, "SRAM errors")


def too_many(gpu: Gpu, count: int, floor: int, what: str) -> Iterator[Finding]:
    if count > floor:
        message = f"GPU {gpu.index}: {count:,} corrected {what} since the driver was loaded, more than {floor:,}"
        yield CORRECTED.found(message, {**address(gpu), "corrected": count, "floor": floor}, gpu.index)


QUESTIONS = (judge_mode, judge_uncorrected, judge_sram, judge_corrected, judge_corrected_sram)


def address(gpu: Gpu) -> dict[str, str]:
    return {"address": gpu.selector}


def summary(facts: Facts) -> str:
    off = [gpu.index for gpu in facts.nvml.reachable.values() if not gpu.ecc_mode.current]
    if off:
        return f"ECC is off on {len(off)} of {len(facts.nvml.reachable)} GPUs, which is usual for them"
    corrected = sum(gpu.ecc_volatile_corrected for gpu in facts.nvml.reachable.values())
    return f"ECC on, no uncorrectable errors, {corrected:,} corrected errors since the driver was loaded"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(UNCORRECTED, SRAM, CORRECTED, MODE_PENDING, DISABLED),
    needs=("nvml",),
    tags=("hardware", "memory"),
)
