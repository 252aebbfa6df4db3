"""CUDA initialises.

What it means
cuInit is the first call of every CUDA program. Where it fails, torch.cuda.is_available() is False and nothing above works,
although nvidia-smi, which does not need it, may look healthy.

How it is judged
The code that cuInit returned to a program of its own, with the user's environment. The causes that have checks of their own
(libcuda, forward compatibility, device nodes, NVML, fabric manager, MPS, CUDA_VISIBLE_DEVICES, compute mode, MIG) are ruled
out before. Of the others the code and the kernel log tell some apart. The rest is named by its code, with what usually causes
it, and its cause counts as not found.

Known exceptions
A slow first initialisation is no failure: without persistence mode the driver starts the GPU anew each time.

References
https://github.com/pytorch/pytorch/issues/49081
https://docs.nvidia.com/cuda/archive/13.2.1/cuda-features-archive/index.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import look
from gpudoctor.fixes.engines import again
from gpudoctor.judging.driver.address_space import LIMITED, limited
from gpudoctor.judging.driver.uvm_state import AFTER_SUSPEND, HMM, INIT, VERIFY, after_suspend, no_range
from gpudoctor.model import Action, Cause, Check, Confidence, Finding, Fix, Problem, Skip, Unavailable, first_cause

LOG = "sudo dmesg | grep -iE 'nvrm|nvidia|xid' | tail -n 20"
NO_DEVICE, UNPOWERED = 100, "xid-54-power-cable"
BROKEN_GPU = ("gpu-fallen-off-bus-probe", "gpu-lost", "gpu-needs-reset", *knowledge.xids.breaking_problems(), UNPOWERED)

READ_LOG = look("Read what the driver says about it, on the host", LOG, root=True, where="host")
REBOOT = Fix("If it stays: reboot", verify=VERIFY, on=("host",), reboot=True)
RESTART_WSL = Fix("Restart WSL, in PowerShell", "wsl --shutdown", risk="disruptive", verify=VERIFY, on=("wsl2",), kind="reset")

DIED = Problem(
    id="cuda-init-died",
    title="CUDA crashes when it initialises",
    why="The program that only initialised CUDA was killed in NVIDIA's library: libcuda is damaged, mixed with files of another "
    "release, or another library that is injected into every program breaks it.",
    action=Action.INSTALL,
    fixes=(
        look("See what is injected into every program", "env | grep -E 'LD_PRELOAD|INJECTION'; cat /etc/ld.so.preload"),
        READ_LOG,
        Fix("Install the driver's packages again, then reboot", on=("host",)),
        RESTART_WSL,
    ),
)

HANGS = Problem(
    id="cuda-init-hangs",
    title="CUDA does not come back from its initialisation",
    why="The call waits in the driver for a GPU or a fabric that does not answer. A process that is stuck in the kernel "
    "(state D) cannot be killed, so that only a reboot helps.",
    action=Action.REBOOT,
    fixes=(READ_LOG, REBOOT, RESTART_WSL),
)

NOT_READY = Problem(
    id="cuda-system-not-ready",
    title="CUDA says that the system is not ready yet",
    why="The driver waits for what must set the GPUs up first: Fabric Manager on machines with NVSwitches (in a virtual machine "
    "the host's), or confidential computing. Which one it is cannot be seen from here.",
    action=Action.FIX_CONFIG,
    fixes=(
        look("See how far the fabric is", "nvidia-smi -q | grep -A 3 Fabric"),
        look("On a machine with NVSwitches: see what Fabric Manager says", "systemctl status nvidia-fabricmanager", on=("host",)),
        Fix(
            "With confidential computing: mark the GPUs as ready",
            "sudo nvidia-smi conf-compute -srs 1",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        READ_LOG,
    ),
    references=("https://github.com/pytorch/pytorch/issues/35710",),
)

UNLICENSED = Problem(
    id="cuda-vgpu-not-licensed",
    title="This vGPU has no licence for CUDA",
    why="The virtual machine got no licence from NVIDIA's licence service, and the kind of vGPU does not run CUDA without.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Put the client token where the service looks for it, then start the service again",
            "sudo chmod 744 /etc/nvidia/ClientConfigToken/*.tok && sudo systemctl restart nvidia-gridd",
            verify="nvidia-smi -q | grep -i license",
            kind="restart",
            needs=("root",),
        ),
    ),
)

NO_MEMORY = Problem(
    id="cuda-init-out-of-memory",
    title="CUDA gets no memory to initialise with",
    why="Not even the first call had enough: main memory or the GPU's is full, or the container's limit is too low.",
    action=Action.RESTART_APP,
    fixes=(
        look("See what is left: of main memory, of the container's limit, of the GPU", "free -m; cat /sys/fs/cgroup/memory.max"),
    ),
)

REFUSED = Problem(
    id="cuda-init-refused-by-system",
    title="The operating system refuses something that CUDA needs",
    why="A system call of libcuda failed: device rules of a container, a seccomp or SELinux rule, or a limit stands in the way.",
    action=Action.FIX_CONFIG,
    fixes=(
        READ_LOG,
        look("See which call is refused", f"strace -f -e trace=openat,ioctl,mmap {INIT} 2>&1 | grep -E 'EPERM|EACCES|ENOMEM'"),
        *again(
            "In a container: try it without rules",
            "run --rm <all_gpus> --privileged IMAGE",
            spec="--privileged",
            on=("container",),
        ),
    ),
)

OLD_RUNTIME = Problem(
    id="wsl-container-driver-library-not-mapped",
    title="The container lacks a library that the new Windows driver needs (error 500)",
    why="Drivers since R555 need one more library from Windows, which older container engines do not put into a container.",
    action=Action.INSTALL,
    fixes=(Fix("Update Docker Desktop to 4.31 or newer, or the NVIDIA Container Toolkit to 1.14.4 or newer; restart WSL"),),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/520",),
)

RELOAD_UVM = replace(AFTER_SUSPEND.fixes[0], title="First try: stop all CUDA programs, then load nvidia-uvm again", on=("host",))
FAILED = Problem(
    id="cuda-init-failed",
    title="CUDA does not initialise",
    why="No CUDA program can run. The usual causes of this error are in the evidence; which one it is here could not be told.",
    action=Action.REBOOT,
    fixes=(READ_LOG, Fix("Start the container again; then reboot the host", on=("container",)), REBOOT, RESTART_WSL),
)


def judge(facts: Facts) -> Iterator[Finding]:
    try:
        code = facts.cuda.init_code
    except Unavailable as no_answer:
        if facts.cuda.died is None:
            raise
        finding = HANGS.found(facts.cuda.died) if facts.cuda.timed_out else DIED.found(no_answer.reason)
        yield replace(finding, causes=BROKEN_GPU)
        return
    if code == NO_DEVICE:
        skip_explained(facts)
    if code:
        otherwise = OTHERWISE.get(code, FAILED).found(said(facts), evidence(facts))
        for finding in first_cause(CAUSES.get(code, ()), facts, otherwise):
            yield finding if finding.confidence is Confidence.CONFIRMED else replace(finding, causes=BROKEN_GPU)


def skip_explained(facts: Facts) -> None:
    """Skips where another check says why there is no device: all GPUs are closed to CUDA, or lost."""
    gpus = facts.nvml.reachable.values()
    if not gpus:
        raise Skip("CUDA has no device: NVML reaches no GPU, see gpu-count", Skip.UNSUPPORTED)
    if all(mode_of(gpu) == "prohibited" for gpu in gpus):
        raise Skip("CUDA has no device: every GPU is in compute mode prohibited, see compute-mode", Skip.UNSUPPORTED)


def mode_of(gpu: Gpu) -> str | None:
    return known(lambda: gpu.compute_mode)


def said(facts: Facts) -> str:
    error = knowledge.cuda_error(facts.cuda.init_code)
    meaning = f": {error.meaning.rstrip('.')}" if error and error.meaning else ""
    return f"cuInit returns {facts.cuda.init_code} ({facts.cuda.init_error}){meaning}"


def evidence(facts: Facts) -> dict[str, Any]:
    error = knowledge.cuda_error(facts.cuda.init_code)
    usual = {"usual_causes": error.cause, "usual_fixes": error.fix} if error and error.cause else {}
    return {"init": facts.cuda.init_code, "library": facts.cuda.library, **usual}


def old_runtime(facts: Facts) -> Finding | None:
    if not (facts.system.wsl and facts.system.is_container):
        return None
    return OLD_RUNTIME.found(said(facts), evidence(facts), confidence=Confidence.LIKELY)


def by_code(problem: Problem) -> Cause:
    """For a code that has only one cause."""
    return Cause(problem, lambda facts: problem.found(said(facts), evidence(facts)))


NO_ADDRESSES = Cause(HMM, lambda facts: no_range(facts, said(facts)))
CAUSES = {
    2: (Cause(LIMITED, lambda facts: limited(facts, said(facts), evidence(facts))), by_code(NO_MEMORY)),
    3: (NO_ADDRESSES,),
    NO_DEVICE: (NO_ADDRESSES,),
    102: (by_code(UNLICENSED),),
    304: (by_code(REFUSED),),
    500: (Cause(OLD_RUNTIME, old_runtime),),
    800: (by_code(REFUSED),),
    802: (NO_ADDRESSES,),
    999: (NO_ADDRESSES, Cause(AFTER_SUSPEND, lambda facts: after_suspend(facts, said(facts)))),
}
UNKNOWN_ERROR = replace(FAILED, fixes=(RELOAD_UVM, *FAILED.fixes))
OTHERWISE = {802: NOT_READY, 919: NOT_READY, 999: UNKNOWN_ERROR}


def summary(facts: Facts) -> str:
    return f"CUDA {'.'.join(map(str, facts.cuda.driver_version))}, {facts.cuda.init_seconds:.2f} s"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(DIED, HANGS, HMM, AFTER_SUSPEND, NOT_READY, UNLICENSED, LIMITED, NO_MEMORY, REFUSED, OLD_RUNTIME, FAILED),
    needs=(
        "cuda-library",
        "device-nodes",
        "nvml",
        "cuda-compat",
        "cuda-visible-devices",
        "mig-instances",
        "cuda-mps",
        "fabric-manager",
    ),
)
