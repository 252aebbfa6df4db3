"""Every GPU on the bus is available in the driver, NVML and CUDA, and the number of GPUs is as expected.

What it means
A GPU can be on the bus and still be unusable: the driver ignores it, it has fallen off the bus since, or it needs a reset.
Programs then run on fewer GPUs than the machine has, or fail if they select the missing one.

How it is judged
The check compares the GPUs on the PCI bus with those for which NVML returns a handle, then with CUDA's GPUs, then with
--expect-gpus. If NVML refuses a handle, code 15 means that the GPU is lost, code 16 that it must be reset.

Known exceptions
In a container or a job, and with CUDA_VISIBLE_DEVICES, fewer GPUs are intended; only --expect-gpus counts. GPUs bound to
vfio-pci, and those that the driver excludes (NVreg_ExcludedGpus), are missing on purpose. With MIG, CUDA sees one instance.

References
https://github.com/NVIDIA/go-nvml/blob/2f9e261/gen/nvml/nvml.h
https://github.com/NVIDIA/open-gpu-kernel-modules/issues/507
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known
from gpudoctor.facts.nvml_values import error_name
from gpudoctor.facts.pci import PciFunction
from gpudoctor.fixes.common import kernel_log, look, reset
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem

LIST = "nvidia-smi -L"
COLD_START = Fix("Power the machine off and on", risk="disruptive", needs=("reboot",), verify=LIST, on=("host",))
ON_HOST = Fix("Check on the host of this container or job, not in here", on=("container", "wsl2"), verify=LIST)

MISSING = Problem(
    id="gpu-missing-from-driver",
    title="A GPU is on the bus, but the driver does not offer it",
    why="The module did not bind to the device or released it: this release does not support the GPU, another driver holds it, "
    "or it could not be initialised.",
    action=Action.REBOOT,
    unfit=True,
    fixes=(
        kernel_log("Read the driver's messages about it", "-iE 'nvrm|nvidia|<slot>' | tail -n 40", on=("host",)),
        Fix(
            "Show which driver holds it, then bind it to nvidia",
            "lspci -nnk -s <gpu>; echo <gpu> | sudo tee /sys/bus/pci/drivers/nvidia/bind",
            verify=LIST,
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        COLD_START,
        ON_HOST,
    ),
)

LOST = Problem(
    id="gpu-lost",
    title="A GPU is lost: the driver can no longer reach it",
    why="It fell off the bus while the machine was running. Possible causes: power, heat, the slot, a riser or cable, or a "
    "failing board.",
    action=Action.REBOOT,
    unfit=True,
    fixes=(
        COLD_START,
        look(
            "If it recurs: reseat the card and power plugs; read the BMC's log",
            "sudo ipmitool sel list | tail",
            on=("physical",),
            root=True,
        ),
        ON_HOST,
    ),
    references=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/507",),
)

RESET = Problem(
    id="gpu-needs-reset",
    title="A GPU must be reset before it can be used",
    why="After an uncorrectable error the driver refuses work until the GPU is reset.",
    action=Action.RESET_GPU,
    unfit=True,
    fixes=(
        reset(gpu="<gpu>", verify=LIST),
        Fix("If the reset is refused: reboot", verify=LIST, on=("host",), reboot=True),
        ON_HOST,
    ),
)

NOT_IN_CUDA = Problem(
    id="gpu-missing-from-cuda",
    title="NVML lists more GPUs than CUDA can use",
    why="CUDA leaves out a GPU that it cannot use: this user may not open its nodes, its memory cannot be mapped, or this "
    "driver's CUDA does not support it.",
    action=Action.FIX_CONFIG,
    fixes=(
        look(
            "Compare NVML's and CUDA's GPUs and the device nodes",
            "nvidia-smi --query-gpu=index,name,uuid,compute_mode --format=csv; ls -l /dev/nvidia*",
        ),
    ),
)

FEWER = Problem(
    id="fewer-gpus-than-expected",
    title="There are fewer GPUs than expected",
    why="Programs can use fewer GPUs here than --expect-gpus requires.",
    action=Action.FIX_CONFIG,
    unfit=True,
    fixes=(
        look("On a host: check that every GPU is on the bus", "lspci -d 10de: -nn", on=("host",)),
        look("Check whether the environment limits the GPUs", "env | grep -E 'VISIBLE_DEVICES|SLURM_.*GPU'", verify=LIST),
    ),
)

GPU_IS_LOST, RESET_REQUIRED = 15, 16
BY_CODE = {GPU_IS_LOST: LOST, RESET_REQUIRED: RESET}
RESERVED = ("vfio-pci", "pci-stub")
JOB = re.compile(r"slurm|/lxc|kubepods|htcondor|pbs", re.I)
IGNORED = re.compile(
    r"""
    The\ NVIDIA\ (?:NVIDIA\ )?(.*?)\ GPU\ installed\ in\ this\ system[ ]
    is\ supported\ through\ the\ NVIDIA\ (\d+)\.xx\ Legacy\ drivers
    """,
    re.VERBOSE,
)


def judge(facts: Facts) -> Iterator[Finding]:
    absent = [gpu for gpu in facts.pci.gpus if not is_by_choice(facts, gpu)]
    refused = [gpu for gpu in facts.nvml.gpus if not gpu.is_reachable]
    found = [*refusals(refused, absent)]
    if absent and not refused and not has_share(facts):
        found = [missing(facts, absent)]
    if not (found or facts.nvml.reachable):
        found = [nothing(facts)]
    yield from found or compare(facts)


def is_by_choice(facts: Facts, gpu: PciFunction) -> bool:
    """Whether a GPU is not missing: NVML lists it, or it is kept from the driver on purpose."""
    if gpu.address in facts.nvml.reachable or gpu.driver in RESERVED:
        return True
    return facts.driver.gpu_information.get(gpu.address, {}).get("GPU Excluded") == "Yes"


def has_share(facts: Facts) -> bool:
    """Whether this is a container or job, which has some of the host's GPUs although the bus shows all of them."""
    return facts.container.engine is not None or JOB.search(facts.container.cgroup) is not None


def refusals(refused: list[Gpu], absent: list[PciFunction]) -> Iterator[Finding]:
    """NVML gives no address for a GPU that it refuses: it is inferred if as many GPUs are absent as are refused."""
    addresses = [gpu.address for gpu in absent] if len(absent) == len(refused) else []
    for place, gpu in enumerate(refused):
        address = addresses[place] if addresses else None
        problem = BY_CODE.get(gpu.handle_error or 0, MISSING)
        words = error_name(gpu.handle_error) if gpu.handle_error else "no answer"
        yield problem.found(
            f"GPU {gpu.index}{f' ({address})' if address else ''}: NVML returns no handle, {words}",
            {"gpu": address or gpu.index, "slot": slot(address), "code": gpu.handle_error},
            gpu=gpu.index,
        )


def missing(facts: Facts, gpus: list[PciFunction]) -> Finding:
    first = gpus[0]
    ignored = IGNORED.search(known(lambda: facts.kernel_log.nvrm, ""))
    words = "; ".join(
        f"{gpu.address} is not in NVML, {f'its driver is {gpu.driver}' if gpu.driver else 'no driver is bound'}" for gpu in gpus
    )
    if ignored and first.driver is None:
        words += f"; according to the log, R{ignored[2]} is the last branch for a {ignored[1]}"
    evidence = {"gpu": first.address, "slot": slot(first.address), "gpus": [gpu.address for gpu in gpus], "driver": first.driver}
    return MISSING.found(words, evidence, confidence=Confidence.CONFIRMED if ignored else Confidence.LIKELY)


def nothing(facts: Facts) -> Finding:
    address = facts.pci.gpus[0].address if facts.pci.gpus else "PCI_ADDRESS"
    return MISSING.found("NVML works but lists no GPU", {"gpu": address, "slot": slot(address)}, confidence=Confidence.LIKELY)


def slot(address: str | None) -> str:
    """The GPU's name in the kernel log: "0000:01:00"."""
    return (address or "NVRM").rpartition(".")[0] or "NVRM"


def compare(facts: Facts) -> Iterator[Finding]:
    """Compare the GPU counts of NVML, CUDA and --expect-gpus."""
    listed, expected = len(facts.nvml.reachable), facts.expected.get("gpus")
    in_cuda = known(lambda: facts.cuda.count)  # another check reports a CUDA that does not initialise
    limit = facts.environment.get("CUDA_VISIBLE_DEVICES")
    usable = listed if in_cuda is None or has_mig(facts) else in_cuda
    if expected is not None and usable < expected:
        why = f", CUDA_VISIBLE_DEVICES is {limit!r}" if limit is not None else ""
        yield FEWER.found(f"{usable} of {expected} expected{why}", {"expected": expected, "usable": usable, "nvml": listed})
    elif in_cuda is not None and usable < listed and limit is None and not is_closed(facts):
        yield NOT_IN_CUDA.found(f"{in_cuda} in CUDA, {listed} in NVML", {"cuda": in_cuda, "nvml": listed})


def has_mig(facts: Facts) -> bool:
    return any(said(gpu, "MigMode.0") == 1 for gpu in facts.nvml.reachable.values())


def is_closed(facts: Facts) -> bool:
    """Compute mode "prohibited" removes a GPU from CUDA; another check reports it."""
    return any(said(gpu, "ComputeMode") == 2 for gpu in facts.nvml.reachable.values())


def said(gpu: Gpu, name: str) -> object:
    return known(lambda: gpu.get(name))


def summary(facts: Facts) -> str:
    count = len(facts.nvml.reachable)
    return f"{count} GPU{'s' * (count != 1)} {'on the bus, in NVML and in CUDA' if facts.pci.gpus else 'in NVML'}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(MISSING, LOST, RESET, NOT_IN_CUDA, FEWER),
    needs=("nvml",),
    explained_by=("gpu-on-bus", "module-flavour", "adapter-init", "xids", "memory-xids"),
    tags=("hardware", "multi-gpu"),
)
