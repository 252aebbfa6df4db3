"""CUDA initialises.

What it means
cuInit is the first call of every CUDA program. If it fails, torch.cuda.is_available() is False and no CUDA program works.
nvidia-smi does not need it and may look healthy.

How it is judged
The check reads the code that cuInit returns in a separate process with the user's environment. Causes with their own checks
(libcuda, forward compatibility, device nodes, NVML, Fabric Manager, MPS, CUDA_VISIBLE_DEVICES, compute mode, MIG) are ruled out
first. The code and the kernel log identify some of the other causes. Otherwise the check reports the code with its usual causes,
and the cause counts as not found.

Known exceptions
A slow first initialisation is not a failure: without persistence mode the driver initialises the GPU each time.

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

READ_LOG = look("On the host: read the driver's messages", LOG, root=True, where="host")
REBOOT = Fix("If it still fails: reboot", verify=VERIFY, on=("host",), reboot=True)
RESTART_WSL = Fix(
    "Restart WSL, in PowerShell",
    "wsl --shutdown",
    risk="disruptive",
    verify=VERIFY,
    on=("wsl2",),
    kind="reset",
    syntax="powershell",
)

DIED = Problem(
    id="cuda-init-died",
    title="CUDA crashes when it initialises",
    why="A program that only initialised CUDA crashed in NVIDIA's library: libcuda is damaged or mixed with files of another "
    "release, or another library that is injected into every program breaks it.",
    action=Action.INSTALL,
    fixes=(
        look("Find what is injected into every program", "env | grep -E 'LD_PRELOAD|INJECTION'; cat /etc/ld.so.preload"),
        READ_LOG,
        Fix("Reinstall the driver's packages, then reboot", on=("host",)),
        RESTART_WSL,
    ),
)

HANGS = Problem(
    id="cuda-init-hangs",
    title="CUDA hangs when it initialises",
    why="The call waits in the driver for a GPU or a fabric that does not answer. A process that is stuck in the kernel "
    "(state D) cannot be killed; only a reboot ends it.",
    action=Action.REBOOT,
    fixes=(READ_LOG, REBOOT, RESTART_WSL),
)

NOT_READY = Problem(
    id="cuda-system-not-ready",
    title="CUDA reports that the system is not ready yet",
    why="The driver waits for something that must set up the GPUs first: Fabric Manager on machines with NVSwitches (in a "
    "virtual machine: the host's Fabric Manager), or confidential computing. Which one cannot be seen from here.",
    action=Action.FIX_CONFIG,
    unfit=True,
    fixes=(
        look("Show the state of the fabric", "nvidia-smi -q | grep -A 3 Fabric"),
        look(
            "On a machine with NVSwitches: show the status of Fabric Manager",
            "systemctl status nvidia-fabricmanager",
            on=("host",),
        ),
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
    why="The virtual machine got no licence from NVIDIA's licence service, and this type of vGPU does not run CUDA without one.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Install the client token where the service looks for it, then restart the service",
            "sudo chmod 744 /etc/nvidia/ClientConfigToken/*.tok && sudo systemctl restart nvidia-gridd",
            verify="nvidia-smi -q | grep -i license",
            kind="restart",
            needs=("root",),
        ),
    ),
)

NO_MEMORY = Problem(
    id="cuda-init-out-of-memory",
    title="CUDA does not get enough memory to initialise",
    why="Even the first call runs out of memory: main memory or the GPU's memory is full, or the container's limit is too low.",
    action=Action.RESTART_APP,
    fixes=(look("Check the free main memory and the container's memory limit", "free -m; cat /sys/fs/cgroup/memory.max"),),
)

REFUSED = Problem(
    id="cuda-init-refused-by-system",
    title="The operating system denies a call that CUDA needs",
    why="A system call of libcuda failed because of a container's device rules, a seccomp or SELinux rule, or a limit.",
    action=Action.FIX_CONFIG,
    fixes=(
        READ_LOG,
        look("Find the call that fails", f"strace -f -e trace=openat,ioctl,mmap {INIT} 2>&1 | grep -E 'EPERM|EACCES|ENOMEM'"),
        *again(
            "In a container: try without restrictions",
            "run --rm <all_gpus> --privileged <image>",
            spec="set securityContext.privileged: true",
            on=("container",),
        ),
    ),
)

OLD_RUNTIME = Problem(
    id="wsl-container-driver-library-not-mapped",
    title="The container lacks a library of the Windows driver (error 500)",
    why="Drivers since R555 need one more library from Windows, which older container engines do not mount into a container.",
    action=Action.INSTALL,
    fixes=(Fix("Update Docker Desktop to 4.31 or newer, or the NVIDIA Container Toolkit to 1.14.4 or newer; restart WSL"),),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/520",),
)

RELOAD_UVM = replace(AFTER_SUSPEND.fixes[0], title="Try first: stop all CUDA programs, then reload nvidia-uvm", on=("host",))
FAILED = Problem(
    id="cuda-init-failed",
    title="CUDA does not initialise",
    why="No CUDA program can run. The usual causes of this error are in the evidence; which one applies here could not be "
    "determined.",
    action=Action.REBOOT,
    unfit=True,
    fixes=(
        READ_LOG,
        Fix("Restart the container; if that does not help, reboot the host", on=("container",)),
        REBOOT,
        RESTART_WSL,
    ),
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
    """Skip if another check reports why CUDA has no device: all GPUs are closed to CUDA, or lost."""
    gpus = facts.nvml.reachable.values()
    if not gpus:
        raise Skip("CUDA finds no device: NVML reaches no GPU, see gpu-count", Skip.UNSUPPORTED)
    if all(mode_of(gpu) == "prohibited" for gpu in gpus):
        raise Skip("CUDA finds no device: every GPU is in compute mode prohibited, see compute-mode", Skip.UNSUPPORTED)


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


def no_memory(facts: Facts) -> Finding:
    return replace(NO_MEMORY.found(said(facts), evidence(facts)), causes=("strict-overcommit",))


def by_code(problem: Problem) -> Cause:
    """The cause of a code that has only one cause."""
    return Cause(problem, lambda facts: problem.found(said(facts), evidence(facts)))


NO_ADDRESSES = Cause(HMM, lambda facts: no_range(facts, said(facts)))
CAUSES = {
    2: (Cause(LIMITED, lambda facts: limited(facts, said(facts), evidence(facts))), Cause(NO_MEMORY, no_memory)),
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
        "mig",
        "cuda-mps",
        "fabric-manager",
    ),
)
