"""The NVSwitch fabric is ready, and multicast and multi-node NVLink on it work.

What it means
On boards with NVSwitches (HGX, DGX), Fabric Manager programs the switches; until then CUDA fails with error 802. It must have
exactly the driver's version. On racks (GB200) the fabric is managed elsewhere, and nodes share memory through IMEX.

How it is judged
Reads the fabric state that NVML reports for each GPU, or the NVSwitches on the PCI bus and CUDA's error 802. If the fabric is
not ready: Fabric Manager's version, then whether it runs. If the fabric is ready: its health, multicast errors since the last
start in /var/log/fabricmanager.log, and the IMEX channels, which Slurm and Kubernetes make for each job.

Known exceptions
In a container, and in a virtual machine without its own switches, Fabric Manager runs on the host, so only the state counts.
PCIe cards, boards with four directly linked GPUs and passed-through single GPUs have no fabric.

References
https://github.com/gpustack/gpustack/issues/1254
https://docs.nvidia.com/datacenter/tesla/tesla-release-notes-535-216-03
https://github.com/NVIDIA/nccl/issues/1788
https://github.com/leptonai/gpud/pull/71
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor import knowledge
from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.gpu_records import Fabric
from gpudoctor.facts.known import supported
from gpudoctor.facts.nvml_values import error_name
from gpudoctor.facts.services import Unit
from gpudoctor.fixes.common import install_on, look, reset_by
from gpudoctor.judging.driver.fabric_services import SUBNET_MANAGER, UMAD, in_guest, subnet_manager, ways
from gpudoctor.judging.driver.imex import IMEX, without_channels
from gpudoctor.model import (
    Action,
    Cause,
    Check,
    Confidence,
    Finding,
    Fix,
    Problem,
    Skip,
    Status,
    first_cause,
)

SYSTEM_NOT_READY = 802
NOT_READY = ("not started", "in progress")
PASSING = {"bandwidth degraded", "route recovery in progress", "access timeout recovery in progress"}
START = re.compile(r"Fabric Manager Log initializing|is running with the following configuration")
LOOK = "nvidia-smi -q | grep -A 3 Fabric"
START_SERVICE = "sudo systemctl enable --now nvidia-fabricmanager"
RESTART_SERVICE = "sudo systemctl restart nvidia-fabricmanager"
OTHERS = Fix("Install Fabric Manager from NVIDIA in exactly the driver's version", verify=LOOK, on=("arch", "other"))
RELEASE_NOTES = "https://docs.nvidia.com/datacenter/tesla/tesla-release-notes-535-216-03"
ON_HOST = Fix("Do this on the host: Fabric Manager does not run in containers", verify=LOOK, on=("container",))
RESET = reset_by(
    "Stop all GPU work, then reset all GPUs while Fabric Manager is stopped",
    "sudo systemctl stop nvidia-fabricmanager; sudo nvidia-smi --gpu-reset; sudo systemctl start nvidia-fabricmanager",
    verify=LOOK,
)

NOT_RUNNING = Problem(
    id="fabricmanager-not-running-802",
    title="Fabric Manager is not running, so CUDA cannot start",
    why="On a board with NVSwitches, CUDA fails with 'system not yet initialized' (802) until Fabric Manager has programmed "
    "the switches. nvidia-smi works without it.",
    action=Action.INSTALL,
    unfit=True,
    fixes=(
        *install_on(
            "Install Fabric Manager in the driver's version and start it",
            recipe="fabric-manager",
            verify=LOOK,
            debian="sudo apt install 'nvidia-fabricmanager-<branch>=<driver>*' && " + START_SERVICE,
            rhel="(sudo dnf install nvidia-fabricmanager-<driver> || sudo dnf install nvidia-fabric-manager-<driver>) && "
            + START_SERVICE,
            suse="(sudo zypper install nvidia-fabricmanager=<driver> || sudo zypper install nvidia-fabric-manager=<driver>) && "
            + START_SERVICE,
        ),
        OTHERS,
        look(
            "If it is installed but stops: read its log",
            "sudo journalctl -u nvidia-fabricmanager -n 50",
            on=("host",),
            root=True,
        ),
        ON_HOST,
    ),
    references=("https://github.com/gpustack/gpustack/issues/1254", "https://github.com/pytorch/pytorch/issues/35710"),
)

MISMATCH = Problem(
    id="fabricmanager-version-mismatch",
    title="Fabric Manager and the driver have different versions",
    why="Fabric Manager starts only if its version is exactly the driver's. One of them was upgraded without the other.",
    action=Action.INSTALL,
    unfit=True,
    fixes=(
        *install_on(
            "Install Fabric Manager in the driver's version and restart it",
            recipe="fabric-manager",
            verify=LOOK,
            debian="sudo apt install 'nvidia-fabricmanager-<branch>=<driver>*' && " + RESTART_SERVICE,
            rhel="(sudo dnf install nvidia-fabricmanager-<driver> || sudo dnf install nvidia-fabric-manager-<driver>) && "
            + RESTART_SERVICE,
            suse="(sudo zypper install nvidia-fabricmanager=<driver> || sudo zypper install nvidia-fabric-manager=<driver>) && "
            + RESTART_SERVICE,
        ),
        OTHERS,
        ON_HOST,
    ),
    references=(RELEASE_NOTES, "https://github.com/ollama/ollama/issues/12136"),
)

UNHEALTHY = Problem(
    id="nvlink-fabric-unhealthy",
    title="The NVLink fabric of a GPU is not healthy",
    why="The GPU is not registered in the fabric, or the fabric reports wrong routes or a wrong configuration. CUDA on several "
    "GPUs fails or hangs.",
    action=Action.RESET_GPU,
    unfit=True,
    fixes=(
        RESET,
        look(
            "On a rack, or if the reset does not help: read the log of the fabric's management",
            "sudo tail -n 100 /var/log/fabricmanager.log",
            on=("host",),
            root=True,
        ),
        ON_HOST,
    ),
    references=("https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h",),
)

DEGRADED = Problem(
    id="nvlink-fabric-degraded",
    title="The NVLink fabric gives a GPU less than its full bandwidth",
    why="The fabric works, but links or routes of this GPU are missing or being recovered. Collectives are slow on all GPUs.",
    action=Action.RESET_GPU,
    status=Status.WARN,
    fixes=(RESET, ON_HOST),
    references=("https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h",),
)

MULTICAST = Problem(
    id="nccl-nvls-multicast-failure",
    title="Fabric Manager refuses multicast, which NCCL needs for NVLS",
    why="NCCL uses NVLS for all-reduce. Fabric Manager was restarted without a GPU reset, or the fabric is in a bad state. NCCL "
    "then fails with CUDA error 401 or 'invalid argument' in nvls.cc.",
    action=Action.RESET_GPU,
    status=Status.WARN,
    fixes=(
        RESET,
        Fix("Until then: disable multicast (slower)", "export NCCL_NVLS_ENABLE=0", where="shell"),
    ),
    references=("https://github.com/NVIDIA/nccl/issues/1788", "https://github.com/leptonai/gpud/pull/71"),
)

BROKEN_LINK = ("nvswitch-error", "xid-74-nvlink-error", "nvlink-link-down")


def judge(facts: Facts) -> Iterator[Finding]:
    fabrics = fabrics_of(facts)
    if not fabrics and not facts.pci.nvswitches:
        raise Skip("no NVSwitch fabric found")
    if not_ready(facts, fabrics):
        states = sorted({fabric.state for _, fabric in fabrics})
        otherwise = UNHEALTHY.found(f"the fabric state is: {' and '.join(states) or 'not ready'}", {"fabric": states})
        yield from first_cause(CAUSES, facts, otherwise)
        return
    for gpu, fabric in fabrics:
        yield from judge_fabric(gpu, fabric)
    yield from judge_channels(facts, fabrics)
    yield from judge_multicast(facts)


def fabrics_of(facts: Facts) -> list[tuple[Gpu, Fabric]]:
    """The GPUs that are in a fabric; drivers do not report it for an A100."""
    found = [(gpu, fabric_of(gpu)) for gpu in facts.nvml.gpus]
    return [(gpu, fabric) for gpu, fabric in found if fabric and fabric.state != "not supported"]


def fabric_of(gpu: Gpu) -> Fabric | None:
    return supported(lambda: gpu.fabric, None)


def not_ready(facts: Facts, fabrics: list[tuple[Gpu, Fabric]]) -> bool:
    if fabrics:
        return any(fabric.state in NOT_READY for _, fabric in fabrics)
    return facts.cuda.init_code == SYSTEM_NOT_READY


def mismatch(facts: Facts) -> Finding | None:
    manager, driver = facts.services.fabric_manager_version, facts.driver.module_version
    if manager is None or manager == driver:
        return None
    return for_here(facts, MISMATCH).found(
        f"Fabric Manager {manager}, driver {driver}", {"fabric_manager": manager, "module": driver}
    )


def for_here(facts: Facts, problem: Problem) -> Problem:
    """The problem with the fixes that apply here: a container cannot install Fabric Manager on its host."""
    return replace(problem, fixes=(ON_HOST,)) if facts.system.is_container else problem


def not_running(facts: Facts) -> Finding | None:
    if any(is_rack(gpu) for gpu in facts.nvml.gpus):
        return None
    if facts.system.is_container:
        words = "the fabric is not ready; it must be set up on the host"
        return for_here(facts, NOT_RUNNING).found(words, confidence=Confidence.LIKELY)
    unit = facts.services.unit("nvidia-fabricmanager")
    if unit and unit.is_active:
        return None
    state = state_of(unit) if unit else "not installed"
    problem = replace(NOT_RUNNING, fixes=ways(unit)) if unit else NOT_RUNNING
    return problem.found(f"the fabric is not ready: nvidia-fabricmanager is {state}", {"service": state})


def state_of(unit: Unit) -> str:
    return "masked" if "masked" in (unit.load, unit.enabled) else f"{unit.active} ({unit.result})"


def is_rack(gpu: Gpu) -> bool:
    known = knowledge.gpu_by_name(gpu.name)
    return bool(known and known.nvlink and "NVL72" in known.nvlink.form)


CAUSES = (
    Cause(NOT_RUNNING, lambda facts: in_guest(facts, NOT_RUNNING)),
    Cause(MISMATCH, mismatch),
    Cause(SUBNET_MANAGER, subnet_manager),
    Cause(NOT_RUNNING, not_running),
)


def judge_fabric(gpu: Gpu, fabric: Fabric) -> Iterator[Finding]:
    """If the driver's summary is healthy, its details are ignored."""
    problems = () if fabric.summary == "healthy" else fabric.problems
    words = ", ".join(problems) or fabric.summary
    evidence = {"status": fabric.status, "summary": fabric.summary, "problems": list(problems)}
    if fabric.status:
        yield UNHEALTHY.found(f"GPU {gpu.index} did not register: {error_name(fabric.status)}", evidence, gpu=gpu.index)
    elif fabric.summary == "unhealthy" or set(problems) - PASSING:
        yield replace(UNHEALTHY.found(f"GPU {gpu.index}: {words}", evidence, gpu=gpu.index), causes=BROKEN_LINK)
    elif fabric.summary == "limited capacity" or problems:
        yield replace(DEGRADED.found(f"GPU {gpu.index}: {words}", evidence, gpu=gpu.index), causes=BROKEN_LINK)


def judge_channels(facts: Facts, fabrics: list[tuple[Gpu, Fabric]]) -> Iterator[Finding]:
    if any(is_rack(gpu) for gpu, _ in fabrics):
        yield from without_channels(facts, len(fabrics))


def judge_multicast(facts: Facts) -> Iterator[Finding]:
    since_start = START.split(facts.services.fabric_manager_log or "")[-1]
    errors = [line for line in since_start.splitlines() if "[ERROR]" in line and "multicast" in line.lower()]
    if errors:
        words = f"multicast errors in /var/log/fabricmanager.log since its last start: {len(errors)}"
        yield MULTICAST.found(words, {"errors": len(errors), "line": errors[-1]}, confidence=Confidence.LIKELY)


def summary(facts: Facts) -> str:
    count = len(fabrics_of(facts))
    return (
        f"{count} GPU{'s are' * (count > 1) or ' is'} registered in the fabric" if count else "CUDA starts on this NVSwitch board"
    )


PROBLEMS = (MISMATCH, SUBNET_MANAGER, UMAD, NOT_RUNNING, UNHEALTHY, DEGRADED, MULTICAST, IMEX)
CHECK = Check(
    judge=judge,
    summary=summary,
    problems=PROBLEMS,
    needs=("nvml",),
    tags=("multi-gpu", "nccl"),
)
