"""Which processes belong to a job: those below one, the other ranks of its job, or those of a Slurm job."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpudoctor.errors import UserError
from gpudoctor.jobs.hanging.proc import Proc, Stat, below
from gpudoctor.jobs.watching.tree import is_of_kernel

MOST_PROCESSES = 256
SCONTROL_SECONDS = 10
# What tells the ranks of one job from those of another.
JOB_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")
RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
LOCAL_WORLD = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
LAUNCHERS = re.compile(
    r"""
    torchrun | torch\.distributed\.(?:run|launch) | mpirun | mpiexec | orterun | prted?\b | srun | slurmstepd | accelerate
    | deepspeed
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Tree:
    """pids: parents before children. left_out: how many more there are."""

    asked: str
    pids: tuple[int, ...]
    everyone: Mapping[int, Stat]
    left_out: int


@dataclass(frozen=True)
class Place:
    """A process in a distributed job, as its variables say. -1: unknown."""

    rank: int
    world: int
    local_rank: int
    local_world: int


def of_pid(proc: Proc, pid: int) -> Tree:
    """The process with all below it; and if it is a rank, the other ranks of its job on this machine. UserError if it is gone."""
    everyone = proc.everyone()
    if pid not in everyone:
        raise UserError(f"--pid {pid}: there is no such process here (it has ended, or it runs in another PID namespace)")
    if is_of_kernel(pid):
        raise UserError(f"--pid {pid}: this is a thread of the kernel, not a program")
    if os.getpid() in below(everyone, pid):
        raise UserError(f"--pid {pid}: gpudoctor itself runs below this process; name the program")
    roots = [pid]
    if known := job_of(proc.variables(pid)):
        roots += [other for other in everyone if other != pid and job_of(proc.variables(other)) == known]
    return _tree(f"pid {pid}", roots, everyone)


def of_slurm(proc: Proc, job: str) -> Tree:
    """The processes of a Slurm job on this node. UserError if Slurm is not here or knows no such job here."""
    program = shutil.which("scontrol")
    if not program:
        raise UserError("--job needs scontrol, which is not on PATH: run this on a node of the job, or use --pid")
    try:
        done = subprocess.run(
            [program, "listpids", job], capture_output=True, text=True, errors="replace", timeout=SCONTROL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise UserError(f"--job {job}: scontrol listpids did not answer ({failure})") from None
    everyone = proc.everyone()
    listed = [int(match[1]) for match in re.finditer(r"^\s*(\d+)\s", done.stdout, re.MULTILINE)]
    found = [pid for pid in listed if pid in everyone]
    if not found:
        said = next(iter((done.stderr or done.stdout).strip().splitlines()), "no process listed")
        raise UserError(f"--job {job}: no process of it runs on this node ({said})")
    return _tree(f"Slurm job {job}", found, everyone)


def _tree(asked: str, roots: Iterable[int], everyone: dict[int, Stat]) -> Tree:
    pids = list(dict.fromkeys(pid for root in roots for pid in below(everyone, root)))
    return Tree(asked, tuple(pids[:MOST_PROCESSES]), everyone, max(0, len(pids) - MOST_PROCESSES))


def job_of(variables: Mapping[str, str]) -> tuple[str, ...] | None:
    """What the ranks of one job have in common; None for a process that is not a rank."""
    if "RANK" not in variables or "MASTER_PORT" not in variables or variables.get("WORLD_SIZE", "1") == "1":
        return None
    return tuple(variables.get(name, "") for name in JOB_VARIABLES)


def place(variables: Mapping[str, str]) -> Place:
    return Place(*(_number(variables, names) for names in (RANK, WORLD, LOCAL_RANK, LOCAL_WORLD)))


def _number(variables: Mapping[str, str], names: Iterable[str]) -> int:
    return next((int(variables[name]) for name in names if re.fullmatch(r"\d{1,7}", variables.get(name, ""))), -1)
