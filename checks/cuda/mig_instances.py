"""A GPU in MIG mode has instances, and a single one is selected for a program.

What it means
MIG partitions a GPU into instances. With MIG enabled, programs use instances and never the GPU itself. A process can use only one
instance, however many are visible to it.

How it is judged
The check reads the MIG mode and the list of instances from NVML. CUDA cannot use a GPU in MIG mode that has no instance.
Programs that count devices with NVML fail if several instances are visible, CUDA_VISIBLE_DEVICES does not name a single one,
and CUDA has one device.

Known exceptions
Disabled MIG is healthy, and GPUs without MIG are not judged. It is a failure if all GPUs lack instances. If only some do, it is a
warning because they are idle, or a failure if CUDA_VISIBLE_DEVICES names an instance that no longer exists. Drivers that give a
process several instances are healthy.

References
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/620/deployment-considerations.html
https://github.com/pytorch/pytorch/issues/130181
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.gpu_records import MigDevice
from gpudoctor.facts.known import known
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/620/deployment-considerations.html"
VARIABLE = "CUDA_VISIBLE_DEVICES"

RENAME = Fix(
    "Then set the UUID of the new instance, which differs from the old one",
    f"export {VARIABLE}=$(nvidia-smi -L | grep -oE -m 1 'MIG-[0-9a-f-]{{36}}')",
    verify="nvidia-smi -L",
    on=("host",),
    where="shell",
)
NO_INSTANCES = Problem(
    id="mig-enabled-without-instances",
    title="MIG is enabled without an instance: CUDA cannot use the GPU",
    why="In MIG mode programs use instances of a GPU, never the GPU itself. Instances do not survive a reboot and must be "
    "created again at boot.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Create one instance of the whole GPU (nvidia-smi mig -lgip lists smaller profiles)",
            "sudo nvidia-smi mig -i <gpus> -cgi 0 -C",
            verify="nvidia-smi -L",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
        Fix(
            "Disable MIG",
            "sudo nvidia-smi -i <gpus> -mig 0",
            risk="disruptive",
            needs=("root", "drain"),
            verify="nvidia-smi -L",
            on=("host",),
            kind="set",
        ),
        Fix("On the host: create instances, then recreate the container with one of them", on=("container",)),
    ),
    references=(GUIDE,),
)

SINGLE = Problem(
    id="mig-single-instance-per-process",
    title="Several MIG instances are visible, but a process can use only one",
    why="CUDA gives a process one MIG instance. Programs that count devices with NVML expect more, and fail when they use the "
    "second one (INTERNAL ASSERT FAILED in PyTorch).",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Select one instance for each process", f"export {VARIABLE}=<instance>", verify="nvidia-smi -L", where="shell"),
        Fix("For work on several devices at once: use whole GPUs with MIG disabled"),
    ),
    references=("https://github.com/pytorch/pytorch/issues/130181",),
    status=Status.WARN,
)


def judge(facts: Facts) -> Iterator[Finding]:
    gpus = facts.nvml.reachable.values()
    in_mig_mode = [gpu for gpu in gpus if gpu.is_in_mig_mode]
    if not in_mig_mode:
        raise Skip("no GPU is in MIG mode")
    empty = [gpu.index for gpu in in_mig_mode if not gpu.mig_uuids and not is_leaving(gpu)]
    if empty:
        yield without_instances(facts, ",".join(map(str, empty)), all_lack=len(empty) == len(gpus))
    instances = [instance for gpu in in_mig_mode for instance in gpu.mig_devices]
    if len(instances) > 1 and not names_one(facts) and facts.cuda.count == 1:
        yield single(facts, instances)


def is_leaving(gpu: Gpu) -> bool:
    """Whether MIG ends with the next reset, so that the GPU lacks this reset and no instance."""
    return known(lambda: not gpu.mig_mode.pending, False)


def without_instances(facts: Facts, indices: str, all_lack: bool) -> Finding:
    words = f"GPU {indices}: MIG is enabled, but no instance exists"
    gone = gone_instance(facts)
    if gone:
        first, *others = NO_INSTANCES.fixes
        renaming = replace(NO_INSTANCES, fixes=(first, RENAME, *others))
        return renaming.found(f"{words}; {VARIABLE} names one that no longer exists", {"gpus": indices, VARIABLE: gone})
    problem = NO_INSTANCES if all_lack else replace(NO_INSTANCES, status=Status.WARN)
    return problem.found(words, {"gpus": indices})


def gone_instance(facts: Facts) -> str | None:
    """The first entry of CUDA_VISIBLE_DEVICES, if it names an instance that no GPU has."""
    try:
        first = (facts.environment.get(VARIABLE) or "").split(",")[0].strip()
    except Skip:  # unknown if only the output of nvidia-smi was given
        return None
    here = (uuid for gpu in facts.nvml.reachable.values() if gpu.is_in_mig_mode for uuid in gpu.mig_uuids)
    if not first.startswith("MIG-") or first.startswith("MIG-GPU-") or any(uuid.startswith(first) for uuid in here):
        return None
    return first


def names_one(facts: Facts) -> bool:
    value = facts.environment.get(VARIABLE) or ""
    return value.startswith("MIG-") and "," not in value


def single(facts: Facts, instances: list[MigDevice]) -> Finding:
    value = facts.environment.get(VARIABLE)
    return SINGLE.found(
        f"{len(instances)} MIG instances, {VARIABLE} is {'not set' if value is None else repr(value)}: CUDA has one device",
        {"instance": instances[0].uuid, "instances": [instance.uuid for instance in instances], VARIABLE: value},
    )


def summary(facts: Facts) -> str:
    counts = [len(gpu.mig_devices) for gpu in facts.nvml.reachable.values() if gpu.is_in_mig_mode]
    return f"{sum(counts)} instances on {len(counts)} GPUs in MIG mode"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(NO_INSTANCES, SINGLE),
    needs=("nvml",),
)
