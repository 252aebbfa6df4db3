"""What started the examined program, as far as its cgroup and variables show it: its resource limits come from there."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudoctor.facts.container import Container
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.known import known
from gpudoctor.facts.replies import Replies
from gpudoctor.facts.texts import Texts

LOGIN, SERVICE, SLURM, CONTAINER = "login", "service", "slurm", "container"
_STEP = re.compile(r"slurmstepd\.scope|/slurm\w*/uid_\d+/job_|/system\.slice/slurmd\.service")
_UNIT = re.compile(r"/system\.slice/(?:system-[^/\s]+/)?(?P<unit>[^/\s]+\.service)(?:/|$)", re.MULTILINE)
# Of these, PAM sets the limits of what they start.
_OF_SESSIONS = (
    "ssh.",
    "ssh@",
    "sshd.",
    "sshd@",
    "cron.",
    "crond.",
    "atd.",
    "getty@",
    "serial-getty@",
    "gdm",
    "sddm.",
    "lightdm.",
)


_OF_SLURM = re.compile(r"\bslurmstepd\b|\bSLURM_\w+=|^\S*[$#] ?(?:srun|sbatch)\b|\bsrun: ")
_KEEPING_LIMITS = ("apptainer", "enroot", "lxc")  # programs in them have those of the job, or logins and services of their own


class Launcher(NamedTuple):
    """kind: login, service, slurm, container, or "" where a text does not show it. unit: of the service."""

    kind: str
    unit: str = ""


def launcher(replies: Replies) -> Launcher:
    """Without a sign of anything else, a person started it."""
    container = Container(replies)
    if known(lambda: container.engine, None) not in (None, *_KEEPING_LIMITS):
        return Launcher(CONTAINER)
    cgroup = known(lambda: container.cgroup, "")
    nothing: dict[str, str] = {}
    variables = known(lambda: Environment(replies).variables, nothing)
    texts = Texts(replies)
    if _STEP.search(cgroup) or not variables.keys().isdisjoint(("SLURM_JOB_ID", "SLURM_JOBID")) or _shows_slurm(texts):
        return Launcher(SLURM)
    found = _UNIT.search(cgroup)
    if found and not found["unit"].startswith(_OF_SESSIONS):
        return Launcher(SERVICE, found["unit"])
    return Launcher("" if texts.alone else LOGIN)


def _shows_slurm(texts: Texts) -> bool:
    return texts.alone and any(_OF_SLURM.search(line) for text in texts.all for _, line in text.lines)
