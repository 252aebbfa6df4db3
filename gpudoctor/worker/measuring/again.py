"""Runs measurements in a new process of Python in which something is different: an experiment."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import Any, Dict

from gpudoctor.worker import changed
from gpudoctor.worker.child import Channel, Child, adopt_orphans, die_with_parent, sweep
from gpudoctor.worker.measuring import schedule

POLL_SECONDS = 0.02
GRACE_SECONDS = 3.0  # beyond the job's own limit, at which it ends by itself


def main(job: Dict[str, Any], channel: Channel) -> None:
    """Runs a job of schedule.py in a child to which job["change"] was applied; job["again"] is the program of that child.

    Sends "refused" if nothing could be changed, else "again": how the child ended, "" for a clean exit.
    """
    change = job["change"]
    adopt_orphans()
    folder = ""
    try:
        folder = changed.room(change, os.environ, job["marker"]) if change["fresh"] else ""
        variables = changed.environment(change, os.environ, folder)
    except OSError as failure:
        channel.send(refused=str(failure))
        shutil.rmtree(folder, ignore_errors=True)
        return
    file = os.path.join(job["folder"], "again.json")
    with open(file, "w", encoding="utf-8") as job_file:
        json.dump({name: value for name, value in job.items() if name not in ("change", "again")}, job_file)
    child = Child(lambda: _become([sys.executable, "-c", job["again"], file], variables, change, channel))
    try:
        end = time.monotonic() + job["seconds"] + GRACE_SECONDS
        while child.poll() is None and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        channel.send(again=child.killed() if child.poll() is None else child.manner)
    finally:
        child.kill()
        sweep()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _become(command: Any, variables: Dict[str, str], change: Dict[str, Any], channel: Channel) -> None:
    die_with_parent()
    changed.apply(change)
    os.dup2(channel.descriptor, 1)
    os.execve(command[0], command, {"PYTHONSAFEPATH": "gpudoctor", **variables})


def run(job: Dict[str, Any]) -> None:
    """In the child: runs the job. Its messages go to the channel of the parent, which is fd 1."""
    channel = Channel(os.dup(1), job["marker"])
    os.dup2(2, 1)
    schedule.main(job, channel.send)
