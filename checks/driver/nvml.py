"""NVML, the driver's management library, can be loaded, initialises and answers in time.

What it means
nvidia-smi, schedulers, monitoring and frameworks use NVML (libnvidia-ml) to query GPUs. It comes with the driver. If it does not
start, the error that programs print is this library's return code.

How it is judged
libnvidia-ml.so.1 is loaded and initialised in a separate process with a time limit. The check reads the loader's message and the
return code of nvmlInit, and notices a crash or a timeout. A start of more than five seconds is slow.

Known exceptions
Earlier checks report versions that do not match and nodes that cannot be opened. The check persistence-mode reports a slow start
without persistence mode. "Not supported" for a single query is not a fault.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import kernel_log, look, reset, shut_down_wsl
from gpudoctor.fixes.engines import by_cdi, restarted
from gpudoctor.judging.driver.nvml_library import LIBRARY_BROKEN, LIBRARY_MISSING, NOT_FOUND_BY_LOADER, not_loadable
from gpudoctor.judging.python.driver_libraries import ELSEWHERE
from gpudoctor.knowledge import nvml_error
from gpudoctor.knowledge.xids import breaking_problems
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

SMI = "nvidia-smi -L"
READ_LOG = kernel_log("Read the driver's messages in the kernel log", "-iE 'nvrm|nvidia' | tail -n 30", on=("host",))
REBOOT = Fix("Reboot", verify=SMI, on=("host",), reboot=True)
RESTART_WSL = shut_down_wsl("In Windows: stop WSL, then open it again", verify=SMI, on=("wsl2",))
AGAIN = Fix("Restart the container; if the error stays, check the host", risk="disruptive", verify=SMI, on=("container",))
RESTART = (REBOOT, RESTART_WSL, AGAIN)
NOT_LOADED = Problem(
    id="nvml-driver-not-loaded",
    title="NVML finds no driver, although the module is loaded",
    why="The library could not reach the module: its device nodes do not lead to it, or a sandbox hides them.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Reload the module",
            "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo nvidia-modprobe -c 0 -u",
            "disruptive",
            ("root", "drain"),
            SMI,
            ("host",),
            kind="restart",
        ),
        *RESTART,
    ),
)

NO_PERMISSION = Problem(
    id="nvml-no-permission",
    title="NVML gets permission denied, although the nodes can be opened",
    why="The mode of the nodes is correct, so a security module (SELinux, AppArmor) or a sandbox denies access.",
    action=Action.FIX_CONFIG,
    fixes=(
        look(
            "Find what was denied",
            "sudo ausearch -m avc -ts boot | grep -i nvidia; sudo dmesg | grep -i denied",
            verify=SMI,
            root=True,
        ),
    ),
)

LOST = Problem(
    id="nvml-gpu-lost",
    title="NVML cannot start: a GPU is lost",
    why="It fell off the bus or is no longer reachable. Possible causes: power, link, heat, or a failing board.",
    action=Action.REBOOT,
    unfit=True,
    fixes=(
        Fix(
            "Power the machine off and on; check cables, power supply and slot", risk="disruptive", needs=("reboot",), verify=SMI
        ),
        READ_LOG,
    ),
)

RESET = Problem(
    id="nvml-reset-required",
    title="NVML cannot start: a GPU must be reset",
    why="After an uncorrectable error or a failed recovery, the GPU must be reset before it can be used.",
    action=Action.RESET_GPU,
    unfit=True,
    fixes=(
        reset("Stop all programs that use GPUs, then reset the GPUs", gpu="", verify=SMI),
        *RESTART,
    ),
)

UNKNOWN_ERROR = Problem(
    id="nvml-unknown-error",
    title="NVML fails with 'Unknown Error'",
    why="In a container, the device rules were lost, usually because of 'systemctl daemon-reload' on the host. On a host, the "
    "driver is in a broken state.",
    action=Action.REBOOT,
    unfit=True,
    fixes=(
        *restarted("Restart the container", SMI, on=("container",)),
        *by_cdi("To fix it permanently: use CDI for the GPUs", SMI, on=("container",)),
        READ_LOG,
        REBOOT,
        RESTART_WSL,
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",),
)

OTHER_ERROR = Problem(
    id="nvml-error",
    title="NVML does not start",
    why="The message contains its return code. The evidence contains NVIDIA's explanation of the code and known solutions.",
    action=Action.REBOOT,
    unfit=True,
    fixes=(READ_LOG, *RESTART),
)

DIED = Problem(
    id="nvml-died",
    title="NVML crashes as soon as it starts",
    why="The library crashed its process: it is damaged, it belongs to another driver, or it reads invalid data from the GPU. "
    "Every program that uses it will crash as well.",
    action=Action.INSTALL,
    unfit=True,
    fixes=(
        look(
            "Find where it crashes, then reinstall the driver's libraries",
            "nvidia-smi -L; " + READ_LOG.command,
            verify=SMI,
            root=True,
        ),
        *RESTART,
    ),
)

CALL_DIED = Problem(
    id="nvml-call-crashes",
    title="An NVML query crashes the program that makes it",
    why="This driver has a bug with this GPU. Monitoring that makes the same query crashes as well.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(look("Update the driver; until then avoid this query", "nvidia-smi --query-gpu=driver_version --format=csv"),),
)

HANGS = Problem(
    id="nvml-hangs",
    title="NVML does not answer: the driver or a GPU hangs",
    why="A call into the driver did not return. A GPU's firmware stopped (Xid 119), a process is stuck in the kernel, or many "
    "GPUs are being initialised without the persistence daemon.",
    action=Action.REBOOT,
    unfit=False,  # only a time limit of ours shows it
    fixes=(
        look(
            "Find what hangs",
            "sudo dmesg | grep -E 'Xid|NVRM' | tail; ps -eo pid,stat,comm | awk '$2 ~ /D/'",
            on=("host",),
            root=True,
        ),
        Fix(
            "If the log shows no Xid: keep the GPUs initialised",
            "sudo systemctl enable --now nvidia-persistenced",
            on=("host",),
            kind="restart",
            needs=("root",),
            undo="sudo systemctl disable --now nvidia-persistenced",
        ),
        *RESTART,
    ),
)

SLOW = Problem(
    id="nvml-slow",
    title="NVML takes long to start",
    why="Every program that queries GPUs waits as long. A GPU answers slowly, or the machine is very busy.",
    action=Action.WATCH,
    status=Status.WARN,
    fixes=(
        look(
            "Look for a GPU with errors, and check the system load",
            "nvidia-smi -q | grep -iE 'err!|xid|remap'; uptime",
            verify="time " + SMI,
        ),
    ),
)

BY_CODE = {4: NO_PERMISSION, 9: NOT_LOADED, 12: LIBRARY_MISSING, 15: LOST, 16: RESET, 999: UNKNOWN_ERROR}
SLOW_SECONDS = 5
SILENT = (79, 119, 120)  # Xids of a GPU that no longer answers


def judge(facts: Facts) -> Iterator[Finding]:
    if not facts.system.wsl and facts.driver.module_version is None:
        raise Skip("no NVIDIA kernel module is loaded")
    if facts.nvml.timed_out:
        yield hangs(facts)
    elif facts.nvml.died:
        problem = CALL_DIED if starts(facts) else DIED
        yield problem.found(facts.nvml.died, {"crash": facts.nvml.died})
    elif facts.nvml.library is None:
        yield not_loadable(facts)
    elif facts.nvml.init_code:
        yield fails(facts)
    else:
        yield from slow(facts)


def starts(facts: Facts) -> bool:
    return known(lambda: facts.nvml.init_code == 0, False)


def hangs(facts: Facts) -> Finding:
    words = facts.nvml.died or "no answer in time"
    silent = [xid for xid in known(lambda: facts.kernel_log.xids, ()) if xid.code in SILENT]
    if silent:
        words += f"; the kernel log shows Xid {silent[-1].code} on {silent[-1].pci}"
    sure = Confidence.CONFIRMED if silent or "state D" in words else Confidence.LIKELY
    return HANGS.found(words, {"xids": [f"{xid.pci}: {xid.code}" for xid in silent]}, confidence=sure)


def fails(facts: Facts) -> Finding:
    code = facts.nvml.init_code
    row = nvml_error(code)
    evidence = {"code": code, "cause": row.cause, "advice": row.fix} if row else {"code": code}
    meaning = row.meaning.split(". ")[0].rstrip(".") if row else "unknown code"
    return BY_CODE.get(code, OTHER_ERROR).found(f"nvmlInit returns {facts.nvml.init_error} ({code}): {meaning}", evidence)


def slow(facts: Facts) -> Iterator[Finding]:
    """A slow start with persistence mode. Another check reports a slow start without it."""
    seconds = facts.nvml.init_seconds
    kept = (known(functools.partial(getattr, gpu, "persistence_mode")) for gpu in facts.nvml.reachable.values())
    if seconds > SLOW_SECONDS and False not in kept:
        yield replace(SLOW.found(f"nvmlInit took {seconds:.1f} s", {"seconds": seconds}), causes=breaking_problems())


def summary(facts: Facts) -> str:
    return f"NVML {facts.nvml.driver_version}, started in {1000 * facts.nvml.init_seconds:.0f} ms"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NOT_FOUND_BY_LOADER, *ELSEWHERE, LIBRARY_BROKEN, *BY_CODE.values(), OTHER_ERROR, DIED, CALL_DIED, HANGS, SLOW),
    needs=("device-nodes", "adapter-init", "wsl-gpu"),
)
