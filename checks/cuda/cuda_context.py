"""A CUDA context can be created on every GPU.

What it means
A program needs a context to use a GPU. If a listed GPU does not give one ("CUDA-capable device(s) is/are busy or unavailable",
"out of memory" at the first call), it cannot be used.

How it is judged
A separate process creates a context on each GPU and destroys it at once. If that fails, the error code and NVML show why: an
exclusive compute mode, a memory error (ECC), or a vGPU.

Known exceptions
A GPU whose memory is full of other work is not faulty: gpu-memory and gpu-processes show whose work it is. The check compute-mode
judges a GPU that its compute mode closes, or that another program uses in exclusive mode. The checks of Xids and of the driver's
recovery action report the GPUs that these explain.

References
https://github.com/ggml-org/llama.cpp/issues/11841
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.cuda import CudaDevice
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.xids import needs_recovery
from gpudoctor.fixes.common import look, reset
from gpudoctor.model import Action, Cause, Check, Confidence, Finding, Fix, Problem, Skip, Status, first_cause, for_each

ENOUGH_MIB = 1024  # a context takes several hundred MiB
OUT_OF_MEMORY, UNAVAILABLE, ECC = 2, 46, 214
OPERATING_SYSTEM = 304  # a call of the system failed, such as one that opens a file
PROCESSES = "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv"
MESSAGES = look(
    "On the host: read the driver's messages", "sudo dmesg | grep -iE 'nvrm|xid' | tail -n 20", root=True, where="host"
)
RESET = reset(verify="nvidia-smi")
REBOOT = Fix("If that does not help: reboot", verify="nvidia-smi", on=("host",), reboot=True)
ASK_HOST = Fix("Ask the owner of the host to reset the GPU", on=("container",))
RESTART_WSL = Fix(
    "Restart WSL, in PowerShell", "wsl --shutdown", risk="disruptive", on=("wsl2",), kind="reset", syntax="powershell"
)

DIED = Problem(
    id="cuda-context-died",
    title="CUDA crashes or hangs when a program starts to use a GPU",
    why="CUDA initialised, but the program that then created a context on a GPU hung or crashed in the driver's library: the GPU "
    "or its firmware does not answer.",
    action=Action.RESET_GPU,
    fixes=(
        MESSAGES,
        reset("Stop all GPU work, then reset the GPUs", gpu="", verify="nvidia-smi"),
        REBOOT,
        ASK_HOST,
        RESTART_WSL,
    ),
)

EXCLUSIVE = Problem(
    id="gpu-exclusive-mode-busy",
    title="A program that is not visible here uses a GPU in exclusive mode",
    why="In compute mode 'exclusive process' only one program can use the GPU, and all others fail because it is busy. That "
    "program runs in another container or on the host.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("On the host: list the processes that use it", PROCESSES),
        Fix(
            "If it should be shared: set the default compute mode",
            "sudo nvidia-smi -i <address> -c DEFAULT",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix("Use another GPU", on=("container",)),
    ),
    status=Status.WARN,
)

MEMORY_ERROR = Problem(
    id="cuda-context-ecc-error",
    title="A GPU refuses work because of an uncorrectable memory error",
    why="The driver refuses new contexts until the faulty memory is taken out of use. A reset of the GPU does that.",
    action=Action.RESET_GPU,
    unfit=True,
    fixes=(RESET, REBOOT, ASK_HOST),
)

BAD_STATE = Problem(
    id="vgpu-or-bad-driver-46",
    title="A GPU is unavailable although no program uses it",
    why="The cause is not a competing program: a vGPU refuses contexts if it has no licence, or if its guest driver does not "
    "match the host's driver.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("On a vGPU: check the licence and both driver branches", "nvidia-smi -q | grep -iE 'license|driver version'"),
        REBOOT,
        ASK_HOST,
    ),
    references=("https://github.com/ggml-org/llama.cpp/issues/11841",),
)

FAILED = Problem(
    id="cuda-context-failed",
    title="CUDA cannot create a context on a GPU",
    why="CUDA lists the GPU, but no program can use it. The usual causes of this error are in the evidence.",
    action=Action.RESET_GPU,
    fixes=(
        MESSAGES,
        RESET,
        REBOOT,
        ASK_HOST,
        RESTART_WSL,
    ),
)


class Refused(NamedTuple):
    """A GPU on which a context could not be created."""

    device: CudaDevice
    gpu: Gpu
    code: int

    def found(self, problem: Problem, message: str = "", confidence: Confidence = Confidence.CONFIRMED, **more: Any) -> Finding:
        error = knowledge.cuda_error(self.code)
        usual = {"usual_causes": error.cause} if error and error.cause else {}
        evidence = {"address": self.gpu.bus_id, "code": self.code, **usual, **more}
        words = f"GPU {self.gpu.index}: creating a context fails with {self.device.context_error} ({self.code})"
        return problem.found(words + (f"; {message}" if message else ""), evidence, self.gpu.index, confidence)


def judge(facts: Facts) -> Iterator[Finding]:
    if facts.cuda.died:
        skip_told([gpu.index for gpu in facts.nvml.gpus if needs_recovery(facts, gpu)])
        yield DIED.found(facts.cuda.died)
        return
    told = [device for device in facts.cuda.devices if is_told(facts, device)]
    others = [device for device in facts.cuda.devices if device not in told]
    if others or not told:
        yield from for_each(others, lambda device: judge_device(facts, device))
    skip_told([gpu_of(facts, device).index for device in told])


def judge_device(facts: Facts, device: CudaDevice) -> Iterator[Finding]:
    if device.context_skipped:
        raise Skip(f"no context was created, CUDA's GPU {device.ordinal} is {device.context_skipped}", Skip.UNSUPPORTED)
    if not device.context_code:
        return
    refused = Refused(device, gpu_of(facts, device), device.context_code)
    if refused.code == UNAVAILABLE:
        skip_closed(refused.gpu)
    if refused.code == OUT_OF_MEMORY:
        skip_busy(refused.gpu)
    finding = next(first_cause(CAUSES.get(refused.code, ()), refused, refused.found(FAILED)))
    yield replace(finding, causes=(*finding.causes, "open-files-limited")) if refused.code == OPERATING_SYSTEM else finding


def gpu_of(facts: Facts, device: CudaDevice) -> Gpu:
    """The same GPU in NVML, found by its PCI address (for a MIG device, too)."""
    for gpu in facts.nvml.gpus:
        if gpu.bus_id == device.bus_id:
            return gpu
    raise Skip(f"NVML does not list GPU {device.bus_id}", Skip.NO_ANSWER)


def is_told(facts: Facts, device: CudaDevice) -> bool:
    """Whether a GPU gave no context and another check reports the cause."""
    return known(lambda: bool(device.context_code) and needs_recovery(facts, gpu_of(facts, device)), False)


def skip_told(indices: list[int]) -> None:
    if indices:
        numbers = ", ".join(map(str, indices))
        raise Skip(f"GPU {numbers} gives no context until it recovers: see xids, memory-xids and recovery-action")


def skip_busy(gpu: Gpu) -> None:
    """Skip if other programs have filled the memory: a busy GPU is not a fault."""
    try:
        free = gpu.memory_free_mib
    except Skip:
        return
    if free < ENOUGH_MIB:
        raise Skip(f"GPU {gpu.index} has only {free} MiB free, see gpu-memory and gpu-processes", Skip.UNSUPPORTED)


def skip_closed(gpu: Gpu) -> None:
    """Skip if compute-mode reports it: a GPU that is closed on purpose, or used by a program that NVML lists."""
    try:
        mode, processes = gpu.compute_mode, gpu.processes
    except Skip:
        return
    if mode == "prohibited" or (mode.startswith("exclusive") and processes):
        raise Skip(f"GPU {gpu.index} is in compute mode {mode}, see compute-mode", Skip.UNSUPPORTED)


def exclusive(refused: Refused) -> Finding | None:
    if not refused.gpu.compute_mode.startswith("exclusive"):
        return None
    return refused.found(EXCLUSIVE, f"its compute mode is {refused.gpu.compute_mode}", Confidence.LIKELY)


def is_virtual(refused: Refused) -> Finding | None:
    if refused.gpu.virtualization_mode != "vgpu":
        return None
    licences = [f"{licence.product}: {'licensed' if licence.licensed else 'no licence'}" for licence in refused.gpu.vgpu_licences]
    finding = refused.found(BAD_STATE, "it is a vGPU", Confidence.LIKELY, licences=licences)
    return replace(finding, because="vgpu-unlicensed-throttled")


def memory_error(refused: Refused) -> Finding:
    return refused.found(MEMORY_ERROR)


CAUSES = {
    UNAVAILABLE: (Cause(EXCLUSIVE, exclusive), Cause(BAD_STATE, is_virtual)),
    ECC: (Cause(MEMORY_ERROR, memory_error),),
}


def summary(facts: Facts) -> str:
    asked = [device for device in facts.cuda.devices if not device.context_skipped]
    slowest = max(device.context_seconds or 0.0 for device in asked)
    return f"contexts created on {len(asked)} of {facts.cuda.count} GPUs, in {slowest:.2f} s at most"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DIED, EXCLUSIVE, MEMORY_ERROR, BAD_STATE, FAILED),
    needs=("cuda-init",),
)
