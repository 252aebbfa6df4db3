"""The driver asks for no recovery of any GPU.

What it means
After an error the driver itself decides what a GPU needs before it can be trusted again: a reset, a reboot, or that work is
drained. nvidia-smi shows it as "GPU Recovery Action". Programs often still start, so that nobody looks.

How it is judged
NVML's recovery action of each GPU, even where everything else looks healthy; anything but none fails. Of a GPU that NVML does
not know, and where only a log is known: the last action that the driver wrote there (Xid 154).

Known exceptions
Drivers before R565 do not have it. Where the kernel log has the Xid behind it, the check of that Xid tells it, with
this action as evidence.

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
from gpudoctor.fixes.common import look, reset
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, for_each

ROW_MARKED = 63
REFERENCES = ("https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h", "https://github.com/NVIDIA/DCGM/issues/263")
LOOK = "nvidia-smi -q -i <address> | grep -i 'recovery action'"
REBOOT = Fix("Reboot", verify=LOOK, on=("host",), reboot=True)
HOST = Fix("Ask the owner of the host: this cannot be done from inside a container", on=("container", "wsl2"))

RESET = Problem(
    id="gpu-recovery-action",
    title="The driver asks to reset a GPU",
    why="After an error the driver marked the GPU: until it is reset, new work may fail or compute wrongly.",
    action=Action.RESET_GPU,
    fixes=(
        reset(verify=LOOK),
        Fix("Where the reset is refused: reboot", verify=LOOK, on=("host",), reboot=True),
        HOST,
    ),
    references=REFERENCES,
)
RESTART = Problem(
    id="gpu-recovery-action-reboot",
    title="The driver asks to reboot the machine for a GPU",
    why="After an error the driver marked the GPU, and a reset is not enough to bring it back.",
    action=Action.REBOOT,
    fixes=(REBOOT, HOST),
    references=REFERENCES,
)
DRAIN = Problem(
    id="gpu-recovery-action-drain",
    title="The driver asks to stop work between GPUs",
    why="After an error of a link the driver asks to end the programs that use several GPUs; others may go on.",
    action=Action.RESTART_APP,
    fixes=(
        look("See which programs use the GPUs, and end those that use several", "nvidia-smi pmon -c 1", verify=LOOK),
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
    told = None
    for finding in for_each(facts.nvml.reachable.values(), judge_gpu):
        if is_told(facts, facts.nvml.gpus[finding.gpu or 0]):
            told = finding
        else:
            yield finding
    if told:
        raise Skip(f"{told.message}; the kernel log has the Xid behind it: see xids and memory-xids")


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    action = gpu.recovery_action
    if action != "none":
        message = f"GPU {gpu.index}: the driver's recovery action is {action}"
        yield PROBLEMS.get(action, RESET).found(message, {"address": gpu.bus_id, "action": action}, gpu.index)


def judge_log(facts: Facts) -> Iterator[Finding]:
    """GPUs of which only the log tells, and of which it does not tell why."""
    for gpu in known(lambda: xids_by_gpu(facts), ()):
        if gpu.gpu is not None or gpu.recovery in (None, "none"):
            continue
        if set(gpu.codes).isdisjoint(MEMORY_ERRORS) and not any(map(is_fatal, gpu.codes)):
            message = f"{gpu.name}: the driver's recovery action is {gpu.recovery}, and the log does not say why"
            yield PROBLEMS.get(gpu.recovery or "", RESET).found(message, {"address": f"{gpu.pci}.0", "action": gpu.recovery})


def is_told(facts: Facts, gpu: Gpu) -> bool:
    """Whether xids or memory-xids fail for what this GPU reported: a replaced row (63) is none of it."""
    codes = xid_codes(facts, gpu)
    if ROW_MARKED in codes and is_row_pending(gpu):
        return True
    return not codes.isdisjoint(set(MEMORY_ERRORS) - {ROW_MARKED}) or any(map(is_fatal, codes))


def summary(facts: Facts) -> str:
    return "no recovery action wanted"


CHECK = Check(
    judge=judge,
    summary=summary,
    of_gpus=True,
    problems=(RESET, RESTART, DRAIN),
    needs=("nvml",),
)
