"""Finds what a user names: a process, a container, a job of Slurm."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from gpudoctor import programs
from gpudoctor.containers.engine import client as engines
from gpudoctor.containers.target.start import not_entered
from gpudoctor.errors import UserError, WorkError
from gpudoctor.jobs.watching import cgroup, tree
from gpudoctor.jobs.watching.target import CONTAINER, JOB, PID, Target

SLURM_SECONDS = 20.0
_UNREACHED = re.compile(r"configuration source|fetch config|unable to contact|res_nsearch", re.IGNORECASE)


def process(pid: int) -> Target:
    """UserError if it is not there."""
    stat = tree.stat_of(f"/proc/{pid}/stat")
    if stat is None:
        raise UserError(f"no process has the id {pid} (ps aux lists them; in a container, only its own are visible)")
    if tree.is_of_kernel(pid):
        raise UserError(f"{pid} ({stat.name}) is a thread of the kernel, not a program")
    if stat.state == "Z":
        raise UserError(f"the process {pid} ({stat.name}) has ended, and its parent has not yet taken notice of it")
    return Target(PID, f"{stat.name} ({pid})", (pid,))


def container(name: str, program: str | None) -> Target:
    """UserError if it does not run here, WorkError if the engine does not answer."""
    engine = engines.find(program)
    about = engine.container(name)
    shown = str(about["Name"]).lstrip("/")
    if obstacle := not_entered(engine.program, shown, about["State"]):
        raise UserError(obstacle)
    pid = int(about["State"].get("Pid") or 0)
    if not engine.is_local or not pid or not Path(f"/proc/{pid}").exists():
        raise UserError(f"the processes of container {shown} are not visible here: run gpudoctor watch where its engine runs")
    folder = cgroup.folder_of(pid)
    return Target(CONTAINER, shown, (pid,), folder if folder != cgroup.ROOT else "")


def slurm_job(id: str) -> Target:
    """The processes of a job on this node. UserError if there are none, WorkError if Slurm does not answer."""
    if not re.fullmatch(r"\d+(\.\w+)?", id):
        raise UserError(f"{id!r} is not the number of a Slurm job, such as 1234 or 1234.0")
    if not shutil.which("scontrol"):
        raise UserError("--job requires Slurm's scontrol, which is not installed here")
    try:
        done = programs.finished(["scontrol", "listpids", id], SLURM_SECONDS)
    except (OSError, subprocess.TimeoutExpired, programs.TooMuch) as failure:
        raise WorkError(f"scontrol listpids does not answer: {failure}") from None
    pids = listed(done.stdout)
    if not pids:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        if any(_UNREACHED.search(line) for line in said):
            raise WorkError(f"scontrol does not reach Slurm: {said[-1][:120]}")
        raise UserError(f"Slurm lists no process of job {id} on this node" + (f": {said[-1][:120]}" if said else ""))
    return Target(JOB, f"job {id}", pids)


def listed(text: str) -> tuple[int, ...]:
    """The first column of `scontrol listpids`, without its head."""
    return tuple(int(line.split()[0]) for line in text.splitlines() if line.split()[:1] and line.split()[0].isdigit())
