"""What a text shows as configured against what is in effect: limits of a service, adapters and GPUs of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

FEWER_ADAPTERS = Problem(
    id="nccl-uses-some-adapters",
    title="NCCL_IB_HCA leaves out RDMA adapters that are next to some GPUs",
    why="GPUs whose own adapter is left out send their data over the link between the sockets, and several share one adapter.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Let NCCL use all adapters", "unset NCCL_IB_HCA", where="shell", kind="set"),
        Fix("Name all that are next to a GPU (PIX or PXB)", "nvidia-smi topo -m", kind="read"),
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca",),
)
FEWER_USED = Problem(
    id="program-started-for-fewer-gpus",
    title="The program was started for fewer GPUs than the machine has",
    why="Its option for the number of GPUs says how many it uses. The others stay idle.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Raise the option to the number of GPUs, if the model's heads can be divided by it, or start more replicas"),
        Fix("Show which GPUs are idle", "nvidia-smi --query-gpu=index,memory.used,utilization.gpu --format=csv", kind="read"),
    ),
    references=("https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html",),
)
DISABLED = Problem(
    id="windows-gpu-disabled",
    title="Windows has disabled the GPU or reports an error for it",
    why="Code 22 means that the device is disabled in the Device Manager, 43 that its driver reported a failure, 31 and 39 that "
    "no driver was loaded.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix("Enable it in the Device Manager of Windows: Display adapters, the NVIDIA GPU, Enable device (code 22)"),
        Fix("Install NVIDIA's driver again with the option of a clean installation (codes 31, 39 and 43)"),
    ),
    references=("https://github.com/MicrosoftDocs/windows-driver-docs",),
)
PROBLEMS = (FEWER_ADAPTERS, FEWER_USED, DISABLED)

_OF_SERVICE = re.compile(r"(?m)^\s*(?:Default)?LimitMEMLOCK=(?P<bytes>\d+)\s*$")
_IN_JOB = re.compile(r"(?m)\bsrun\b[^\n]*ulimit -l[^\n]*\n\s*(?P<kib>\d+)\s*$")
_SAID_OF_JOB = re.compile(r"\bsrun\b[^\n]{0,30}ulimit -l['\"]?[^\n]{0,20}\b(?P<kib>\d+)\b")
_SHELL = re.compile(
    r"""
    [$#>]\ ulimit\ -l\s*\n\s*unlimited\s*$
    | \b(?:ssh|login|shell|host|session)\b[^\n]{0,40}ulimit\ -l[^\n]{0,20}\bunlimited\b
    """,
    re.MULTILINE | re.VERBOSE,
)
LITTLE = 64 << 20  # bytes
WHY_SERVICE = (
    "Jobs inherit their limits from slurmd, which systemd starts with LimitMEMLOCK of its unit. /etc/security/limits.conf only "
    "counts for logins. RDMA has to lock the memory that it registers."
)
OF_UNIT = (
    Fix(
        "Raise the limit of slurmd on all nodes, and restart it",
        "sudo mkdir -p /etc/systemd/system/slurmd.service.d && printf '[Service]\\nLimitMEMLOCK=infinity\\n' | "
        "sudo tee /etc/systemd/system/slurmd.service.d/memlock.conf && sudo systemctl daemon-reload && "
        "sudo systemctl restart slurmd",
        verify="srun bash -c 'ulimit -l'",
        undo="sudo rm /etc/systemd/system/slurmd.service.d/memlock.conf && sudo systemctl daemon-reload",
        on=("host",),
        kind="restart",
        needs=("root",),
    ),
)


def limit_of_service(facts: Facts) -> Iterator[Finding]:
    """A job may lock little memory, as its service does, and a shell any amount."""
    text = "\n".join(passages(facts))
    job, unit = _IN_JOB.search(text) or _SAID_OF_JOB.search(text), _OF_SERVICE.search(text)
    if job and int(job["kib"]) << 10 < LITTLE and (_SHELL.search(text) or (unit and int(unit["bytes"]) < LITTLE)):
        words = f"in a job of Slurm ulimit -l is {job['kib']} KiB" + (
            f", as LimitMEMLOCK of the unit ({unit['bytes']})" if unit else ""
        )
        problem = replace(facts.problems["memlock-limited"], why=WHY_SERVICE, fixes=OF_UNIT)
        yield problem.found(words, {"kib": int(job["kib"])}, confidence=Confidence.LIKELY)


_HCA = re.compile(
    r"""
    ^\s*(?:export\ )?NCCL_IB_HCA=[\"']?(?P<names>mlx5_\d+(?::\d+)?(?:,mlx5_\d+(?::\d+)?)*)[\"']?\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)
_NIC = re.compile(r"(?m)^\s*(?P<nic>NIC\d+): (?P<name>mlx5_\d+)\s*$")
_NEXT_TO = re.compile(r"(?m)^\s*(?P<nic>NIC\d+|mlx5_\d+)[ \t][^\n]*\b(?:PIX|PXB)\b")


def adapters_left_out(facts: Facts) -> Iterator[Finding]:
    """The topology shows adapters next to GPUs that NCCL_IB_HCA does not name."""
    text = "\n".join(passages(facts))
    chosen = _HCA.search(text)
    names = {match["nic"]: match["name"] for match in _NIC.finditer(text)}
    near = {names.get(match["nic"], match["nic"]) for match in _NEXT_TO.finditer(text)}
    if not chosen or len(near) < 2:
        return
    named = {name.partition(":")[0] for name in chosen["names"].split(",")}
    left = sorted(name for name in near - named if name.startswith("mlx5"))
    if left and near & named:
        words = f"NCCL_IB_HCA does not name {', '.join(left)}, which are next to a GPU"
        yield FEWER_ADAPTERS.found(words, {"left_out": left}, confidence=Confidence.LIKELY)


_OPTION = re.compile(
    r"""
    (?:--tensor-parallel-size|--tp(?:-size)?|-tp|--nproc[_-]per[_-]node
        |--num[_-]gpus|--num_processes)[= ](?P<count>\d+)\b
    """,
    re.VERBOSE,
)
_MISSES = re.compile(r"(?i)\bonly\b[^\n]{0,30}\bGPUs?\b|\bhalf\b|\bidle\b|\bother (?:two|GPUs?|half)\b")
BUSY, IDLE_MIB = 50, 1000


def started_for_fewer(facts: Facts) -> Iterator[Finding]:
    """A program with an option for N GPUs keeps exactly N busy, the others are empty, and the text misses them."""
    text = "\n".join(passages(facts))
    counts = {int(match["count"]) for match in _OPTION.finditer(text)}
    gpus = known(lambda: facts.nvml.gpus, ())
    loads = [known(lambda gpu=gpu: gpu.get("UtilizationRates.gpu"), -1) for gpu in gpus]  # type: ignore[misc]
    busy = sum(load >= BUSY for load in loads)
    idle = sum(load == 0 for load in loads)
    if len(counts) == 1 and counts == {busy} and idle and busy + idle == len(loads) and _MISSES.search(text):
        words = f"the program was started for {busy} GPU{'s' * (busy > 1)}, and {idle} of {len(loads)} are idle"
        yield FEWER_USED.found(words, {"started": busy, "listed": len(loads)}, confidence=Confidence.LIKELY)


_ERROR_CODE = re.compile(
    r"""
    ^\s*(?P<name>NVIDIA\ [^\n]*?)\s{2,}(?:Error|Degraded|Unknown|OK)\s+(?P<code>22
        |31|39|43|10|12)\s*$
    """,
    re.MULTILINE | re.VERBOSE,
)


def disabled_in_windows(facts: Facts) -> Iterator[Finding]:
    """Win32_VideoController reports a code for NVIDIA's GPU."""
    match = next((match for text in passages(facts) for match in _ERROR_CODE.finditer(text)), None)
    if match:
        words = f"Windows reports code {match['code']} for {match['name']}"
        yield DISABLED.found(words, {"code": int(match["code"])}, confidence=Confidence.LIKELY)


_BROKEN = re.compile(
    r"""
    Video\ BIOS:\s*\?\?\.\?\?[^\n]*(?:\n(?!\s*Model:)[^\n]*){0,8}?\bBus\ Location:\s*(?P<address>\S+)
    """,
    re.VERBOSE,
)


def does_not_answer(facts: Facts) -> Iterator[Finding]:
    """/proc/driver/nvidia/gpus has a GPU without a video BIOS, which nvidia-smi does not list."""
    match = next((match for text in passages(facts) for match in _BROKEN.finditer(text)), None)
    if match and known(lambda: facts.nvml.count, 0):
        words = f"the driver cannot read the video BIOS of {match['address']}, and nvidia-smi does not list it"
        evidence = {"gpu": match["address"], "slot": match["address"].rsplit(":", 1)[0], "on_bus": 2, "listed": 1}
        yield facts.problems["gpu-missing-from-driver"].found(words, evidence, confidence=Confidence.LIKELY)


RULES = (limit_of_service, adapters_left_out, started_for_fewer, disabled_in_windows, does_not_answer)
