"""No repair of GPU memory is waiting for a reset, and every bank has spare rows left.

What it means
GPUs since Ampere replace a bad row of memory with a spare one; older ones retire the page. Both are recorded at once and take
effect at the next reset. If a bank has no spare rows left, its next error cannot be repaired.

How it is judged
NVML reports one of these: a row, page, channel or TPC is waiting for a reset; a replacement failed; banks without spare rows;
at least 60 retired pages, of at most 64; or, since driver R590, memory that cannot be repaired.

Known exceptions
Rows replaced in the past are not reported. If the kernel log has the error as an Xid (48, 63, 64, 94, 95, 140), memory-xids
reports it. NVML does not answer on GPUs without this feature or with MIG devices in use.

References
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
https://docs.nvidia.com/deploy/dynamic-page-retirement/visibility.html
https://github.com/stas00/ml-engineering/blob/744d01e/compute/accelerator/nvidia/debug.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.xids import MEMORY_ERRORS, xid_codes
from gpudoctor.fixes.common import ASK_OWNER_OF_GPU, look, reboot, report_to_vendor, reset, vendor_test
from gpudoctor.model import Action, Check, Finding, Problem, Skip, Status, for_each

GUIDE = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
PAGES = "https://docs.nvidia.com/deploy/dynamic-page-retirement/visibility.html"
DEBUG = "https://github.com/stas00/ml-engineering/blob/744d01e/compute/accelerator/nvidia/debug.md"
RETIRED_PAGES_LIMIT = 60
NO_SPARES_LEFT = 64

LOOK = "nvidia-smi -q -i <address> -d ROW_REMAPPER,PAGE_RETIREMENT"
RESET = reset("When convenient: stop what uses the GPU, then reset it", verify=LOOK)
TEST = vendor_test("Confirm the error with the long test", "-r 4", risk="disruptive")
REPORT = report_to_vendor("Collect NVIDIA's report and ask the vendor for a replacement")
HOST = ASK_OWNER_OF_GPU

PENDING = Problem(
    id="ecc-retired-pages-pending-perf",
    title="A GPU memory repair is waiting for a reset",
    why="A bad row or page is marked for replacement. It is replaced when the GPU is reset. Running work is safe.",
    action=Action.RESET_GPU,
    fixes=(RESET, reboot("If the reset is refused: reboot", LOOK), HOST),
    references=(GUIDE, PAGES),
    status=Status.WARN,
)
FAILED = Problem(
    id="row-remap-failed",
    title="A bad row of GPU memory could not be replaced",
    why="No spare row was left for it, or the row was itself a replacement. This is NVIDIA's criterion for replacing the board.",
    action=Action.REPLACE_HARDWARE,
    unfit=True,
    fixes=(REPORT, TEST, HOST),
    references=(GUIDE,),
)
UNREPAIRABLE = Problem(
    id="gpu-memory-unrepairable",
    title="The driver reports GPU memory that cannot be repaired",
    why="The driver found memory errors for which neither spare rows nor spare channels are left. With this flag it asks for the "
    "board to be replaced.",
    action=Action.REPLACE_HARDWARE,
    fixes=(REPORT, TEST, HOST),
    references=("https://docs.nvidia.com/deploy/nvml-api/structnvmlUnrepairableMemoryStatus__v1__t.html", GUIDE),
)
EXHAUSTED = Problem(
    id="row-remap-spares-exhausted",
    title="Some GPU memory banks have no spare rows left",
    why="The next bad row in one of these banks cannot be replaced. The board is then due for replacement.",
    action=Action.WATCH,
    fixes=(replace(TEST, title="Test the memory"), look("Watch the row counters", LOOK), HOST),
    references=(DEBUG,),
    status=Status.WARN,
)
PAGES_FULL = Problem(
    id="retired-pages-limit-reached",
    title="The GPU has nearly reached its limit of retired memory pages",
    why="A GPU can retire 64 pages. Errors beyond that cannot be repaired; the board is due for replacement.",
    action=Action.REPLACE_HARDWARE,
    fixes=(REPORT, TEST, HOST),
    references=(PAGES,),
)


LOGGED_AS = {PENDING.id: MEMORY_ERRORS, FAILED.id: (NO_SPARES_LEFT,), EXHAUSTED.id: (NO_SPARES_LEFT,)}


def judge(facts: Facts) -> Iterator[Finding]:
    # Asked one at a time: old GPUs retire pages, new ones replace rows.
    questions = [(question, gpu) for gpu in facts.nvml.reachable.values() for question in QUESTIONS]
    logged = None
    for finding in for_each(questions, lambda pair: pair[0](pair[1])):
        codes = xid_codes(facts, facts.nvml.gpus[finding.gpu or 0])
        if codes.isdisjoint(LOGGED_AS.get(finding.problem.id, ())):
            yield finding
        else:
            logged = finding
    if logged:
        raise Skip(f"{logged.message}; the kernel log has the Xid: see memory-xids")


def judge_rows(gpu: Gpu) -> Iterator[Finding]:
    rows = gpu.remapped_rows
    evidence = {**address(gpu), "corrected": rows.corrected, "uncorrected": rows.uncorrected}
    count = f"rows replaced or marked so far: {rows.corrected + rows.uncorrected}"
    if known(lambda: gpu.memory_unrepairable, False):  # drivers since R590
        found = UNREPAIRABLE.found(
            f"GPU {gpu.index}: the driver's flag of unrepairable memory is set; {count}", evidence, gpu.index
        )
        yield replace(found, because=FAILED.id)
    if rows.failure:
        yield FAILED.found(f"GPU {gpu.index}: the replacement of a row failed; {count}", evidence, gpu.index)
    elif rows.pending:
        found = PENDING.found(f"GPU {gpu.index}: a row is waiting to be replaced; {count}", evidence, gpu.index)
        yield replace(found, because="ecc-uncorrected-errors")


def judge_pages_pending(gpu: Gpu) -> Iterator[Finding]:
    if gpu.retired_pages_pending:
        yield PENDING.found(f"GPU {gpu.index}: a page is waiting to be retired", address(gpu), gpu.index)


def judge_repairs(gpu: Gpu) -> Iterator[Finding]:
    waiting = [name for name, is_due in (("channel", gpu.channel_repair_pending), ("TPC", gpu.tpc_repair_pending)) if is_due]
    if waiting:
        yield PENDING.found(f"GPU {gpu.index}: a repair is waiting: {' and '.join(waiting)}", address(gpu), gpu.index)


def judge_spares(gpu: Gpu) -> Iterator[Finding]:
    banks = gpu.row_remapper_histogram
    if banks["none"] and not gpu.remapped_rows.failure:
        message = f"GPU {gpu.index}: {banks['none']} of {sum(banks.values())} banks have no spare rows left"
        yield EXHAUSTED.found(message, {**address(gpu), "banks": banks}, gpu.index)


def judge_pages(gpu: Gpu) -> Iterator[Finding]:
    pages = gpu.retired_pages
    total = pages.single_bit + pages.double_bit
    if total >= RETIRED_PAGES_LIMIT:
        evidence = {**address(gpu), "single_bit": pages.single_bit, "double_bit": pages.double_bit}
        found = PAGES_FULL.found(f"GPU {gpu.index}: {total} of at most 64 pages are retired", evidence, gpu.index)
        yield replace(found, because="xid-64-row-remap-failure")


QUESTIONS = (judge_rows, judge_pages_pending, judge_repairs, judge_spares, judge_pages)


def address(gpu: Gpu) -> dict[str, str | int]:
    return {"address": gpu.selector}


def summary(facts: Facts) -> str:
    replaced = sum(gpu.remapped_rows.corrected + gpu.remapped_rows.uncorrected for gpu in facts.nvml.reachable.values())
    return f"no memory row is waiting for a reset; rows replaced so far: {replaced}"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(PENDING, FAILED, UNREPAIRABLE, EXHAUSTED, PAGES_FULL),
    needs=("nvml",),
    tags=("hardware", "memory"),
)
