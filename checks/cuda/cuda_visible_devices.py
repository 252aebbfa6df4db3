"""CUDA_VISIBLE_DEVICES names GPUs that exist here, and their order is unambiguous.

What it means
The variable selects the GPUs that a program sees, and their order. CUDA reports no error for a wrong value: it stops at the first
entry that it does not recognise. A wrong value hides GPUs, often all of them (error 100, "no CUDA-capable device").

How it is judged
The check reads the entries as CUDA does: numbers from 0, or the beginnings of UUIDs of GPUs or MIG instances that NVML lists. A
value that leaves no GPU is a failure; a value that CUDA reads only in part is a warning. The number of devices that CUDA itself
reports overrides this reading. A value that hides some GPUs is usually meant: it is a finding only if a program requested one of
the others. If the models differ, CUDA puts the fastest GPU first while nvidia-smi sorts by PCI address, so
numbers mean different GPUs.

Known exceptions
-1 ends a list; alone or in first place it hides all GPUs, which may be intended. CUDA_DEVICE_ORDER does not matter if all GPUs
are the same model, if both orders happen to be the same, or if GPUs are named by UUID.

References
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gpudoctor.facts import Facts
from gpudoctor.facts.gpu import Gpu
from gpudoctor.facts.known import known, supported
from gpudoctor.fixes.common import look
from gpudoctor.model import Action, Check, Confidence, Finding, Fix, Problem, Skip, Status

VARIABLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
REFERENCE = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
FILES = "~/.bashrc ~/.profile ~/.zshrc /etc/environment /etc/profile.d/*.sh"
BY_SLURM = "nodevfiles"
HIDING = ("", "none", "void", BY_SLURM)

WHERE = (
    look(
        "Find the line that sets it, then delete or correct it",
        f"grep -sn {VARIABLE} {FILES} || echo 'in none of these files'",
        on=("host", "wsl2"),
    ),
    Fix("In a container: correct it in the image's ENV, the compose file, the --env-file or -e of docker run", on=("container",)),
    Fix("In a conda environment: unset it", f"conda env config vars unset {VARIABLE}", on=("conda",), kind="install"),
)
SEE_ALL = Fix("In this shell: make all GPUs visible", f"unset {VARIABLE}", verify="nvidia-smi -L", where="shell")

HIDES_ALL = Problem(
    id="cuda-visible-devices-hides-all-gpus",
    title="CUDA_VISIBLE_DEVICES hides every GPU",
    why="An empty value or -1 hides all GPUs from CUDA. Unset and empty are not the same.",
    action=Action.FIX_CONFIG,
    fixes=(SEE_ALL, *WHERE),
    references=(REFERENCE,),
)

ASK_SLURM = (
    Fix("Request a GPU: this job of Slurm did not, so that Slurm hides all of them", "srun --gres=gpu:1 nvidia-smi -L"),
    Fix("In a batch script: add #SBATCH --gres=gpu:1 before the first command"),
)

UNKNOWN = Problem(
    id="cuda-visible-devices-unknown-gpu",
    title="CUDA_VISIBLE_DEVICES selects no GPU: programs see none",
    why="CUDA stops at the first entry that it does not recognise, and here that is the first one. Numbers start at 0, and a "
    "UUID changes with the board. Quotation marks in an env file become part of the value. A GPU that is named twice hides all "
    "GPUs.",
    action=Action.FIX_CONFIG,
    fixes=(
        SEE_ALL,
        Fix("Set it to a GPU that exists", f"export {VARIABLE}=<valid>", verify="nvidia-smi -L", where="shell"),
        *WHERE,
    ),
    references=(REFERENCE,),
)

CUT_SHORT = Problem(
    id="cuda-visible-devices-cut-short",
    title="CUDA ignores the end of CUDA_VISIBLE_DEVICES",
    why="CUDA stops at the first entry that it does not recognise, so programs see fewer GPUs than the value names.",
    action=Action.FIX_CONFIG,
    fixes=(Fix("Set it to GPUs that exist", f"export {VARIABLE}=<valid>", verify="nvidia-smi -L", where="shell"), *WHERE),
    references=(REFERENCE,),
    status=Status.WARN,
)

HIDES_SOME = Problem(
    id="cuda-visible-devices-hides-requested-gpu",
    title="CUDA_VISIBLE_DEVICES hides a GPU that a program requests",
    why="CUDA numbers only the GPUs that the value names, from 0. A program that starts one process for each GPU of the machine "
    "then requests numbers that do not exist.",
    action=Action.FIX_CONFIG,
    fixes=(
        replace(SEE_ALL, title="In this shell: make all GPUs visible, unless a scheduler chose them"),
        Fix("With torchrun: start as many processes as there are visible GPUs", "torchrun --nproc-per-node=gpu train.py"),
        *WHERE,
    ),
    references=(REFERENCE,),
)

ORDER_DIFFERS = Problem(
    id="cuda-device-order-mismatch",
    title="CUDA and nvidia-smi number the GPUs in a different order",
    why="Without CUDA_DEVICE_ORDER, CUDA puts the fastest GPU first, while nvidia-smi sorts by PCI address. A program that uses "
    "GPU 1 then runs on another GPU than GPU 1 of nvidia-smi.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("In this shell: set the order of the PCI bus", f"export {ORDER}=PCI_BUS_ID", where="shell"),
        Fix(
            "For all users: set it in /etc/environment, then log in again",
            f"echo {ORDER}=PCI_BUS_ID | sudo tee -a /etc/environment",
            on=("host", "wsl2"),
            kind="set",
            needs=("root",),
        ),
        Fix("In an image: set it with ENV in the Dockerfile", on=("container",)),
    ),
    references=(REFERENCE,),
    status=Status.WARN,
)


class Reading(NamedTuple):
    """How CUDA reads a value: the entries that it accepts, and why it stops at the next one (if it does)."""

    taken: list[str]
    stopped: str = ""
    is_meant: bool = False  # stopped by a -1, which ends the list


def judge(facts: Facts) -> Iterator[Finding]:
    value = facts.environment.get(VARIABLE)
    if value is not None:
        yield from judge_value(facts, value)
    yield from order(facts)


def judge_value(facts: Facts, value: str) -> Iterator[Finding]:
    if value.strip().lower() in HIDING or re.match(r"\s*-\d", value):
        if not is_contradicted(facts, 0):
            problem = replace(HIDES_ALL, fixes=ASK_SLURM) if is_of_slurm(facts, value) else HIDES_ALL
            words = f"{VARIABLE} is {value!r}{where(facts)}"
            yield problem.found(words, {VARIABLE: value}, confidence=certainty(facts))
        return
    reading = read(value, facts)
    yield from hides_some(value, reading, facts)
    if not reading.stopped or reading.is_meant or is_contradicted(facts, len(reading.taken)):
        return
    skip_lost_instance(facts, value)
    valid = ",".join(reading.taken) or example(value, facts)
    problem = CUT_SHORT if reading.taken else UNKNOWN
    yield problem.found(
        f"{VARIABLE} is {value!r}{where(facts)}: {reading.stopped}",
        {VARIABLE: value, "valid": valid, "gpus": facts.nvml.count},
        confidence=certainty(facts),
    )


def where(facts: Facts) -> str:
    """The first file that sets it, in brackets; "" if none was found."""
    files = [place for place in known(lambda: facts.environment.set_in(VARIABLE), ()) if place.startswith("/")]
    return f" ({files[0]})" if files else ""


def hides_some(value: str, reading: Reading, facts: Facts) -> Iterator[Finding]:
    """A clue: usually fewer GPUs are wanted; it is shown only if a program requests one of the others."""
    count = len(reading.taken)
    if 0 < count < facts.nvml.count and not any(entry.startswith("MIG-") for entry in reading.taken):
        words = f"{VARIABLE} is {value!r}: programs see {count} of {facts.nvml.count} GPUs"
        found = HIDES_SOME.found(words, {VARIABLE: value, "visible": count, "gpus": facts.nvml.count})
        yield replace(found, is_clue=True)


def is_of_slurm(facts: Facts, value: str) -> bool:
    """Whether Slurm hides the GPUs from a job that requested none."""
    names = [name for name in facts.environment.variables if name.startswith("SLURM_")]
    return value.strip().lower() == BY_SLURM or (bool(names) and not any("GPU" in name for name in names))


def skip_lost_instance(facts: Facts, value: str) -> None:
    """Skip if the value names a MIG instance and a GPU in MIG mode lacks instances: mig-instances reports that."""
    if value.startswith("MIG-") and any(is_without_instances(gpu) for gpu in facts.nvml.reachable.values()):
        raise Skip(f"{VARIABLE} names a MIG instance that no longer exists, see mig-instances")


def is_without_instances(gpu: Gpu) -> bool:
    return known(lambda: gpu.mig_mode.current and not gpu.mig_uuids, False)


def example(value: str, facts: Facts) -> str:
    """A valid value: a UUID for MIG devices, which cannot be named by number; else 0."""
    found = [uuid for uuid in uuids(facts) if uuid.startswith("MIG-")] if value.startswith("MIG-") else []
    return found[0] if found else "0"


def read(value: str, facts: Facts) -> Reading:
    entries = [entry.strip() for entry in value.split(",")]
    if entries[0].startswith(("GPU-", "MIG-")):
        return read_uuids(entries, uuids(facts))
    return read_numbers(entries, facts.nvml.count)


def read_numbers(entries: list[str], count: int) -> Reading:
    taken: list[str] = []
    for entry in entries:
        number = re.match(r"[+-]?\d+", entry)  # CUDA reads the leading digits
        if not number:
            return Reading(taken, f"{entry!r} is not a GPU number")
        if int(number[0]) < 0:
            return Reading(taken, f"{entry} ends the list", is_meant=True)
        if int(number[0]) >= count:
            return Reading(taken, f"GPU {number[0]} does not exist, NVML lists {count} GPU{'s' * (count != 1)}")
        if number[0] in taken:
            return Reading([], f"GPU {number[0]} is named twice")
        taken.append(number[0])
    return Reading(taken)


def read_uuids(entries: list[str], known: list[str]) -> Reading:
    taken: list[str] = []
    for entry in entries:
        # Drivers before R470 name a MIG instance MIG-GPU-<uuid>/<instance>/<instance>.
        start = entry.removeprefix("MIG-").split("/")[0] if entry.startswith("MIG-GPU-") else entry
        fitting = [uuid for uuid in known if uuid.startswith(start)]
        if len(fitting) != 1:
            return Reading(taken, f"{entry} {f'matches {len(fitting)} GPUs' if fitting else 'matches no GPU'}")
        if entry in taken:
            return Reading([], f"{entry} is named twice")
        taken.append(entry)
    return Reading(taken)


def uuids(facts: Facts) -> list[str]:
    gpus = facts.nvml.reachable.values()
    return [gpu.uuid for gpu in gpus] + [uuid for gpu in gpus for uuid in instances(gpu)]


def instances(gpu: Gpu) -> tuple[str, ...]:
    return supported(lambda: gpu.mig_uuids, ())


def is_contradicted(facts: Facts, count: int) -> bool:
    """Whether CUDA sees more GPUs than our reading of the value allows."""
    seen = known(lambda: facts.cuda.count)  # without a device CUDA does not initialise either
    return seen is not None and seen > count


def certainty(facts: Facts) -> Confidence:
    try:
        return Confidence.CONFIRMED if facts.cuda.init_code in (0, 100) else Confidence.LIKELY
    except Skip:
        return Confidence.LIKELY


def order(facts: Facts) -> Iterator[Finding]:
    if facts.environment.get(ORDER) == "PCI_BUS_ID" or not differs(facts):
        return
    models = list(dict.fromkeys(gpu.name for gpu in facts.nvml.reachable.values()))
    value = facts.environment.get(ORDER)
    yield ORDER_DIFFERS.found(
        f"the models differ ({', '.join(models)}), and {ORDER} is {'not set' if value is None else repr(value)}",
        {"models": models, ORDER: value, "cuda": [device.name for device in facts.cuda.devices]},
    )


def differs(facts: Facts) -> bool:
    """Whether CUDA and nvidia-smi use the same number for different GPUs."""
    by_bus = list(facts.nvml.reachable)
    if len({gpu.name for gpu in facts.nvml.reachable.values()}) < 2:
        return False
    by_cuda = [device.bus_id for device in facts.cuda.devices]
    value = facts.environment.get(VARIABLE)
    if value is None or not by_cuda:
        return bool(by_cuda) and by_cuda != by_bus
    numbers = re.findall(r"\d+", value) if re.match(r"\s*\d", value) else []
    meant = [by_bus[int(number)] for number in numbers if int(number) < len(by_bus)]
    return meant != by_cuda[: len(meant)]


def summary(facts: Facts) -> str:
    value = facts.environment.get(VARIABLE)
    return "all GPUs are visible" if value is None else f"{VARIABLE} is {value}"


CHECK = Check(
    judge=judge,
    summary=summary,
    problems=(HIDES_ALL, UNKNOWN, CUT_SHORT, HIDES_SOME, ORDER_DIFFERS),
    needs=("nvml",),
    tags=("slurm",),
)
