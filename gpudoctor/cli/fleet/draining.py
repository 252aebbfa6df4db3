"""Takes bad nodes out of service, after asking."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import click

from gpudoctor import screen

if TYPE_CHECKING:
    from gpudoctor.cli.sharing import Sharing
    from gpudoctor.fleet.model import Fleet

PROGRAMS = {"slurm": "scontrol", "kubernetes": "kubectl"}
_SECONDS = 60


def must_be_possible(scheduler: str, how: Sharing) -> None:
    """UsageError before the nodes are asked."""
    if how.is_for_all():
        raise click.UsageError("--drain needs the names of the nodes: it cannot be used with redaction.")
    if not shutil.which(PROGRAMS[scheduler]):
        raise click.UsageError(f"--drain {scheduler} needs {PROGRAMS[scheduler]}, which is not installed.")
    if not (sys.stdin and sys.stdin.isatty()):
        raise click.UsageError("--drain asks first and needs a terminal. Without it the commands are printed.")


def drain(fleet: Fleet, scheduler: str) -> None:
    """Asks for each group of nodes, then runs the command that was shown."""
    for each in fleet.drains:
        line = each.slurm if scheduler == "slurm" else each.kubernetes
        screen.note(f"\n{each.nodes}: {each.reason}\n  {line}")
        if not click.confirm("Run it?", default=False, err=True):
            continue
        code, said = _run(line)
        screen.note("Drained." if code == 0 else f"Failed (exit code {code}): {said}")


def _run(line: str) -> tuple[int, str]:
    from gpudoctor import programs

    try:
        done = programs.finished(shlex.split(line), _SECONDS)
    except (OSError, subprocess.TimeoutExpired, programs.TooMuch) as failure:
        return 1, str(failure)
    return done.returncode, (done.stderr or done.stdout).strip()
