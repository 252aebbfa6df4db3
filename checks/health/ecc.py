"""GPU memory has lost no data, and ECC watches over it where it should.

What it means
ECC repairs single wrong bits and reports what it cannot repair. DRAM repairs itself with spare rows; caches and registers
(SRAM) cannot, so a board whose SRAM errors add up has to be replaced.

How it is judged
Uncorrectable errors since the driver was loaded (volatile counters) fail. SRAM fails where NVML says that its threshold is
exceeded, or that it had more than four uncorrectable errors in its life. Corrected errors warn above Azure's floor: 20
million, or 10 thousand in SRAM, since the driver was loaded. ECC that is off warns on a data-centre GPU, and a change
of the mode that waits for a reset warns everywhere.

Known exceptions
Corrected errors below the floor, and uncorrectable DRAM errors of the past, are no finding. Where the kernel log has the
error as an Xid, memory-xids tells it. GeForce and workstation GPUs come with ECC off, or have none.

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
from gpudoctor.fixes.common import look, report_to_vendor, reset, reset_by, vendor_test
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status, for_each

DEBUG = "https://github.com/stas00/ml-engineering/blob/744d01e/compute/accelerator/nvidia/debug.md"
AZURE = "https://github.com/Azure/azurehpc-health-checks/blob/main/conf/nd96isr_h100_v5.conf"
DCGM = "https://github.com/NVIDIA/DCGM/blob/master/dcgmlib/dcgm_errors.h"
CORRECTED_FLOOR = 20_000_000
CORRECTED_SRAM_FLOOR = 10_000
UNCORRECTABLE_SRAM_LIMIT = 4
ROW_MARKED = 63

LOOK = "nvidia-smi -q -i <address> -d ECC"
RESET = reset(verify=LOOK)
TEST = vendor_test("If they come back: test the memory", "-r 3", risk="disruptive")
REPORT = report_to_vendor("Collect NVIDIA's report and ask the vendor for a replacement")
HOST = Fix("Ask the owner of the host: this cannot be done from inside a container", on=("container", "wsl2"))

UNCORRECTED = Problem(
    id="ecc-uncorrected-errors",
    title="The GPU's memory lost data since the driver was loaded",
    why="ECC saw errors that it could not repair; the programs that used that memory failed. A reset lets spare rows replace it.",
    action=Action.RESET_GPU,
    fixes=(RESET, TEST, HOST),
    references=(DEBUG, DCGM),
)
SRAM = Problem(
    id="sram-errors-need-replacement",
    title="The GPU's caches fail: the board is due for replacement",
    why="SRAM has no spare rows. Past this many uncorrectable errors NVIDIA's partners replace the board.",
    action=Action.REPLACE_HARDWARE,
    fixes=(REPORT, TEST, HOST),
    references=(DEBUG,),
)
CORRECTED = Problem(
    id="ecc-corrected-errors-high",
    title="ECC repairs unusually many errors on this GPU",
    why="Results are right, but this many corrected errors come before errors that cannot be repaired.",
    action=Action.WATCH,
    fixes=(replace(TEST, title="Test the memory"), look("Watch the counters", LOOK), HOST),
    references=(AZURE,),
    status=Status.WARN,
)
MODE_PENDING = Problem(
    id="ecc-mode-change-pending",
    title="A change of the ECC mode waits for a reset",
    why="ECC was switched, which takes effect at the next reset of the GPU or reboot.",
    action=Action.RESET_GPU,
    fixes=(RESET, Fix("Reboot", verify=LOOK, on=("host",), reboot=True), HOST),
    references=(DEBUG,),
    status=Status.WARN,
)
DISABLED = Problem(
    id="ecc-disabled",
    title="ECC is off on a data-centre GPU",
    why="Wrong bits in memory go unseen and spoil results. On HBM, ECC costs neither memory nor speed.",
    action=Action.FIX_CONFIG,
    fixes=(
        reset_by(
            "Switch ECC on, then reset the GPU",
            "sudo nvidia-smi -i <address> -e 1 && sudo nvidia-smi --gpu-reset -i <address>",
            verify=LOOK,
        ),
        HOST,
    ),
    references=(DEBUG,),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    # Each question by itself: a driver may know one counter and not the other.
    questions = [(question, gpu) for gpu in facts.nvml.reachable.values() for question in QUESTIONS]
    told = None
    for finding in for_each(questions, lambda pair: pair[0](pair[1])):
        if finding.problem is UNCORRECTED and is_told(facts, facts.nvml.gpus[finding.gpu or 0]):
            told = finding
        else:
            yield finding
    if told:
        raise Skip(f"{told.message}; the kernel log has the Xid: see memory-xids")


def is_told(facts: Facts, gpu: Gpu) -> bool:
    return bool(xid_codes(facts, gpu) & set(MEMORY_ERRORS) - {ROW_MARKED})


def judge_mode(gpu: Gpu) -> Iterator[Finding]:
    mode = gpu.ecc_mode
    board = knowledge.gpu_by_name(gpu.name)
    if mode.pending != mode.current:
        now, then = ("on", "off") if mode.current else ("off", "on")
        yield MODE_PENDING.found(f"GPU {gpu.index}: ECC is {now}, and {then} after the next reset", address(gpu), gpu.index)
    elif not mode.current and board and board.ecc == "default on":
        yield DISABLED.found(f"GPU {gpu.index} ({gpu.name}): ECC is off", address(gpu), gpu.index)


def judge_uncorrected(gpu: Gpu) -> Iterator[Finding]:
    count = gpu.ecc_volatile_uncorrected
    if count:
        evidence = {**address(gpu), "uncorrected": count, **corrected(gpu)}
        words = f"GPU {gpu.index}: uncorrectable errors since the driver was loaded: {count}"
        words += "; a bad row waits for its replacement, which the reset brings" * is_row_pending(gpu)
        yield UNCORRECTED.found(words, evidence, gpu.index)


def corrected(gpu: Gpu) -> dict[str, int]:
    """What stands beside it, where that is told."""
    return known(lambda: {"corrected": gpu.ecc_volatile_corrected}, {})


def judge_sram(gpu: Gpu) -> Iterator[Finding]:
    status = gpu.sram_status
    if status.threshold_exceeded or status.aggregate_uncorrected > UNCORRECTABLE_SRAM_LIMIT:
        words = (
            "over the threshold" if status.threshold_exceeded else f"more than {UNCORRECTABLE_SRAM_LIMIT} call for replacement"
        )
        evidence = {**address(gpu), "uncorrected": status.aggregate_uncorrected, "by_unit": status.sources}
        yield SRAM.found(
            f"GPU {gpu.index}: {status.aggregate_uncorrected} uncorrectable SRAM errors in its life, {words}", evidence, gpu.index
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
    return {"address": gpu.bus_id}


def summary(facts: Facts) -> str:
    off = [gpu.index for gpu in facts.nvml.reachable.values() if not gpu.ecc_mode.current]
    if off:
        return f"ECC is off on {len(off)} of {len(facts.nvml.reachable)}, which is usual there"
    corrected = sum(gpu.ecc_volatile_corrected for gpu in facts.nvml.reachable.values())
    return f"ECC on, no uncorrectable error, {corrected:,} corrected since the driver was loaded"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(UNCORRECTED, SRAM, CORRECTED, MODE_PENDING, DISABLED),
    needs=("nvml",),
)
