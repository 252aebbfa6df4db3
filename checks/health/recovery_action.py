"""The driver asks for no recovery action on any GPU.

What it means
After an error the driver decides what a GPU needs before it can be used again: a reset, a reboot, or that its work is
drained. nvidia-smi shows this as "GPU Recovery Action". Programs often still start, so the request is easily missed.

How it is judged
Reads NVML's recovery action of each GPU, even if everything else looks healthy; any value other than none fails. For a GPU
that NVML does not list, and if only a log is given, the last action that the driver wrote there (Xid 154) counts.

Known exceptions
Drivers before R565 do not report it. If the kernel log has the Xid of the error, the check of that Xid reports it, with this
action as evidence.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
https://github.com/NVIDIA/DCGM/issues/263
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.xids import MEMORY_ERRORS, is_fatal, is_row_pending, xid_codes, xids_by_gpu
from gpudoctor.fixes.common import ASK_OWNER_OF_GPU, look, reboot, reset
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, for_each

ROW_MARKED = 63
REFERENCES = ("https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h", "https://github.com/NVIDIA/DCGM/issues/263")
LOOK = "nvidia-smi -q -i <address> | grep -i 'recovery action'"
REBOOT = reboot(verify=LOOK)
HOST = ASK_OWNER_OF_GPU

RESET = Problem(
    id="gpu-recovery-action",
    title="The driver asks for a GPU reset",
    why="The driver marked the GPU after an error. Until it is reset, new work may fail or compute wrong results.",
    action=Action.RESET_GPU,
    unfit=True,
    fixes=(
        reset(verify=LOOK),
        reboot("If the reset is refused: reboot", LOOK),
        HOST,
    ),
    references=REFERENCES,
)
RESTART = Problem(
    id="gpu-recovery-action-reboot",
    title="The driver asks for a reboot because of a GPU",
    why="The driver marked the GPU after an error. A reset is not enough to recover it.",
    action=Action.REBOOT,
    unfit=True,
    fixes=(REBOOT, HOST),
    references=REFERENCES,
)
DRAIN = Problem(
    id="gpu-recovery-action-drain",
    title="The driver asks to stop programs that use several GPUs",
    why="After a link error the driver asks to stop the programs that use several GPUs. Other programs may continue.",
    action=Action.RESTART_APP,
    unfit=True,
    fixes=(
        look("List the programs on the GPUs and stop those that use several", "nvidia-smi pmon -c 1", verify=LOOK),
        Fix("If the driver still asks for it: reboot", verify=LOOK, on=("host",), reboot=True),
    ),
    references=REFERENCES,
)
PROBLEMS = {
    "node-reboot": RESTART,
    "system-reboot": RESTART,
    "drain-p2p": DRAIN,
    "recover-imex-domain": DRAIN,
}


def judge(facts: Facts) -> Iterator[Finding]:
    yield from judge_log(facts)
    logged = None
    for finding in for_each(facts.nvml.reachable.values(), judge_gpu):
        if is_logged(facts, facts.nvml.gpus[finding.gpu or 0]):
            logged = finding
        else:
            yield finding
    if logged:
        raise Skip(f"{logged.message}; the kernel log has the Xid: see xids and memory-xids")


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    action = gpu.recovery_action
    if action != "none":
        message = f"GPU {gpu.index}: the driver's recovery action is {action}"
        yield PROBLEMS.get(action, RESET).found(message, {"address": gpu.selector, "action": action}, gpu.index)


def judge_log(facts: Facts) -> Iterator[Finding]:
    """GPUs whose recovery action is known only from the log, which does not contain the error."""
    for gpu in known(lambda: xids_by_gpu(facts), ()):
        if gpu.gpu is not None or gpu.recovery in (None, "none"):
            continue
        if set(gpu.codes).isdisjoint(MEMORY_ERRORS) and not any(map(is_fatal, gpu.codes)):
            message = f"{gpu.name}: the driver's recovery action is {gpu.recovery}, and the log does not show why"
            yield PROBLEMS.get(gpu.recovery or "", RESET).found(message, {"address": f"{gpu.pci}.0", "action": gpu.recovery})


def is_logged(facts: Facts, gpu: Gpu) -> bool:
    """Whether xids or memory-xids fail because of this GPU's Xids; a row that was replaced (63) does not count."""
    codes = xid_codes(facts, gpu)
    if ROW_MARKED in codes and is_row_pending(gpu):
        return True
    return not codes.isdisjoint(set(MEMORY_ERRORS) - {ROW_MARKED}) or any(map(is_fatal, codes))


def summary(facts: Facts) -> str:
    return "the driver asks for no recovery action"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(RESET, RESTART, DRAIN),
    needs=("nvml",),
    tags=("hardware",),
)
