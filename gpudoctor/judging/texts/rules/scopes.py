"""Whose GPUs a listing of a text shows: those of a process, a container, a job, or all of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.asked import PRIVILEGED
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

NOT_FOR_SMI = Problem(
    id="nvidia-smi-ignores-cuda-visible-devices",
    title="nvidia-smi lists all GPUs: it does not read CUDA_VISIBLE_DEVICES",
    why="CUDA_VISIBLE_DEVICES is read by CUDA, in each program. nvidia-smi asks the driver, and lists every GPU whose device "
    "node it may open. CUDA programs with the variable still see only the named GPUs.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Show what CUDA programs see",
            'python -c "import torch; print(torch.cuda.device_count(), torch.cuda.get_device_name(0))"',
            kind="read",
        ),
        Fix("Keep the others out of an Apptainer container: set NVIDIA_VISIBLE_DEVICES, use --nvccli --contain and not --nv"),
    ),
    references=(
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars",
        "https://github.com/apptainer/apptainer/issues/2203",
    ),
)
OUTSIDE_OF_JOB = Problem(
    id="container-outside-of-slurm-job",
    title="A Docker container does not belong to the Slurm job, and sees all GPUs",
    why="Slurm confines the processes of the job. The Docker daemon starts containers outside of the job, so "
    "--gpus all gives it all GPUs of the node.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Name the GPUs of the job",
            'docker run --rm --gpus "\\"device=$SLURM_JOB_GPUS\\"" <image> nvidia-smi -L',
            engines=("docker",),
        ),
        Fix("Use Apptainer, Podman without root, or Pyxis and Enroot: their containers are processes of the job"),
    ),
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/211",),
)
FEWER_RESERVED = Problem(
    id="compose-reserves-fewer-gpus",
    title="The compose file reserves fewer GPUs than the host has",
    why="Compose gives a service exactly the number of count, or the GPUs of device_ids. The others stay hidden from it.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "In the compose file: set count: all (or the number, or device_ids), then create the container again",
            "docker compose up -d --force-recreate",
            verify="docker compose exec <chosen_name> nvidia-smi -L",
            kind="restart",
            risk="disruptive",
        ),
    ),
    references=("https://docs.docker.com/compose/how-tos/gpu-support/",),
)
IN_USE = Problem(
    id="slurm-gpus-all-allocated",
    title="Other jobs have all GPUs of the node, so the job waits",
    why="Free CPUs and memory do not help a job that requests a GPU: AllocTRES of the node names as many GPUs as CfgTRES.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Show the jobs that have them, and when they end", "squeue -w <node> -o '%i %u %b %L'", kind="read"),
        Fix("Show when the job is expected to start", 'squeue --start -u "$USER"', kind="read"),
    ),
    references=("https://slurm.schedmd.com/scontrol.html",),
)
PROBLEMS = (NOT_FOR_SMI, OUTSIDE_OF_JOB, FEWER_RESERVED, IN_USE)

_ROWS = r"(?P<rows>(?:GPU\ \d+:[^\n]*(?:\n|\Z))+)"
_CHOSEN = re.compile(
    rf"""
    ^[^\n]*\b(?:APPTAINERENV_|SINGULARITYENV_)?CUDA_VISIBLE_DEVICES=["']?(?P<named>\d+(?:,\d+)*)["']?
    (?:;|\ &&)?\ [^\n]*\bnvidia-smi
    (?:\ -L|\ --list-gpus)?\ *\n{_ROWS}
    """,
    re.MULTILINE | re.VERBOSE,
)
_IN_DOCKER = re.compile(
    rf"""
    ^[^\n]*\bdocker\ run\b[^\n]*--gpus[=\ ]["']?all\b[^\n]*\bnvidia-smi\ (?:-L|--list-gpus)\ *\n{_ROWS}
    """,
    re.MULTILINE | re.VERBOSE,
)
_IN_JOB = re.compile(rf"^[^\n|]*[$#>]\ ?nvidia-smi\ (?:-L|--list-gpus)\ *\n{_ROWS}", re.MULTILINE | re.VERBOSE)
_SRUN = re.compile(r"\b(?:srun|salloc)\b[^\n]*--(?:gres=gpu|gpus)")
_GIVEN = re.compile(r"(?m)^\s*NVIDIA_VISIBLE_DEVICES=[\"']?(?P<names>GPU-[\da-f-]+(?:,GPU-[\da-f-]+)*)")
_PRIVILEGED = re.compile(r"(?m)^\s*privileged:\s*true\b|\"Privileged\":\s*true")


def _count(match: re.Match[str] | None) -> int:
    return len(match["rows"].strip().splitlines()) if match else 0


def listed_in_spite(facts: Facts) -> Iterator[Finding]:
    """nvidia-smi is started with CUDA_VISIBLE_DEVICES, and lists more GPUs than it names."""
    match = next((match for text in passages(facts) for match in _CHOSEN.finditer(text)), None)
    if match and _count(match) > (named := len(match["named"].split(","))):
        words = f"CUDA_VISIBLE_DEVICES names {named} GPU{'s' * (named > 1)}, and nvidia-smi lists {_count(match)}"
        yield NOT_FOR_SMI.found(words, {"named": named, "listed": _count(match)}, confidence=Confidence.LIKELY)


def outside_of_job(facts: Facts) -> Iterator[Finding]:
    """In one job nvidia-smi lists the GPUs of the job, and in a container of Docker more."""
    text = "\n".join(passages(facts))
    own, other = _count(_IN_JOB.search(text)), _count(_IN_DOCKER.search(text))
    if _SRUN.search(text) and 0 < own < other:
        words = f"the job has {own} GPUs, and a container of Docker in it sees {other}"
        yield OUTSIDE_OF_JOB.found(words, {"own": own, "listed": other}, confidence=Confidence.LIKELY)


def more_than_given(facts: Facts) -> Iterator[Finding]:
    """NVIDIA_VISIBLE_DEVICES of a privileged container names fewer GPUs than nvidia-smi lists there."""
    text, listed = "\n".join(passages(facts)), known(lambda: facts.nvml.count, 0)
    given = _GIVEN.search(text)
    if given and _PRIVILEGED.search(text) and (count := len(given["names"].split(","))) < listed:
        words = f"the container was given {count} GPU{'s' * (count > 1)}, is privileged, and sees {listed}"
        yield PRIVILEGED.found(words, {"requested": count, "listed": listed}, confidence=Confidence.LIKELY)


_COUNT = re.compile(r"(?m)^\s*count:\s*[\"']?(?P<count>\d+)[\"']?\s*$")
_SERVICE = re.compile(rf"\bdocker[ -]compose\ exec\ (?P<service>[\w.-]+)\ nvidia-smi\ -L\ *\n{_ROWS}", re.VERBOSE)


def fewer_reserved(facts: Facts) -> Iterator[Finding]:
    """The service of a compose file lists as many GPUs as it reserves, and the host has more."""
    text = "\n".join(passages(facts))
    reserved, inside = _COUNT.search(text), _SERVICE.search(text)
    hosts = max((_count(match) for match in _IN_JOB.finditer(text)), default=0)
    if (
        reserved
        and inside
        and facts.shown.compose_asks
        and _count(inside) == int(reserved["count"]) < hosts
        and _MISSES.search(text)
    ):
        words = f"the compose file reserves {reserved['count']} of the {hosts} GPUs"
        evidence = {"reserved": int(reserved["count"]), "listed": hosts, "chosen_name": inside["service"]}
        yield FEWER_RESERVED.found(words, evidence, confidence=Confidence.LIKELY)


_MISSES = re.compile(r"(?i)\b(?:only|second|both|other one|all of them)\b|tensor-parallel-size [2-9]")
_HAS, _GAVE = (re.compile(rf"(?m)^\s*{name}=\S*?gres/gpu=(?P<count>\d+)") for name in ("CfgTRES", "AllocTRES"))
_WAITS = re.compile(
    r"""
    \bPD\b[^\n]*\((?:Resources|Priority)\)|\(Resources\)|\bState=PENDING\b
        |\bJobState=PENDING\b
    """,
    re.VERBOSE,
)
_ASKS = re.compile(r"(?i)\b(?:why|although|though|but|since|still|free|never)\b|n't\b")
_NODE = re.compile(r"(?:NodeName=|scontrol show node )(?P<node>[\w.-]+)")


def all_allocated(facts: Facts) -> Iterator[Finding]:
    """A job waits for resources, and the GPUs of the node are all allocated."""
    text = "\n".join(passages(facts))
    has, gave, node = _HAS.search(text), _GAVE.search(text), _NODE.search(text)
    is_full = has and gave and 0 < int(has["count"]) == int(gave["count"]) and "State=MIX" in text
    if has and is_full and _WAITS.search(text) and _ASKS.search(text):
        words = f"all {has['count']} GPUs of the node are allocated"
        evidence = {"node": node["node"]} if node else {}
        yield replace(IN_USE).found(words, {"gpus": int(has["count"]), **evidence}, confidence=Confidence.LIKELY)


RULES = (listed_in_spite, outside_of_job, more_than_given, fewer_reserved, all_allocated)
