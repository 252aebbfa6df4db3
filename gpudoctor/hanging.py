"""`gpudoctor hang`: from a program or its files to a checkup."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpudoctor import catalog, evidence, explaining
from gpudoctor.checkup import Checkup
from gpudoctor.collect import collect
from gpudoctor.errors import UserError, WorkError
from gpudoctor.facts.job.stuck import QUESTION
from gpudoctor.interpreter import Interpreter
from gpudoctor.jobs.hanging import given, looking
from gpudoctor.jobs.hanging.proc import Proc
from gpudoctor.model import Report, Snapshot, Status

PROBES = ("kernel-log", "system")
MACHINE_SECONDS = 6.0
CHECKS = {"job", "evidence", "xids", "program-xids", "memory-xids", "sxids"}
"""Areas and checks that judge what was asked; of a snapshot, all checks do."""
SYMPTOM, CHECK = "program-hangs", "hang"

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """pid, job: the program; None if only files are given."""

    pid: int | None
    job: str | None
    seconds: float
    native: bool
    dump: bool
    files: tuple[str, ...]


def looked(asked: Asked, tell: Tell) -> Checkup:
    """UserError if the program is not there, or a file cannot be read; WorkError if nothing in the files is known."""
    proc = Proc()
    tree = looking.tree_of(proc, asked.pid, asked.job)
    read = given.read(asked.files)
    if tree is None:
        answers = evidence.snapshot_of(read.texts or evidence.Evidence())
        reply = looking.of_files(read.dumps, read.timeouts)
    else:
        reply = looking.looked(proc, tree, looking.How(asked.seconds, asked.native, asked.dump), tell)
        reply = looking.with_files(reply, read.dumps, read.timeouts)
        tell("reading the kernel log")
        answers = _machine()
        if read.texts:
            answers = evidence.added(answers, read.texts)
    answers = replace(answers, level="quick", replies={**answers.replies, QUESTION: reply})
    judging = [id for id, check in catalog.checks().items() if {id, check.area} & CHECKS and check.level == "quick"]
    found = Checkup(snapshot=answers, checks=judging)
    if tree is None and not (read.dumps or read.timeouts or explaining.explained_anything(found.report)):
        files = asked.files[0] if len(asked.files) == 1 else "these files"
        raise WorkError(f"nothing in {files} is recognised: neither a dump of the flight recorder nor a message of a rank")
    return found


def _machine() -> Snapshot:
    """What the kernel says. The rest of the machine is not asked: a probe of CUDA would use the GPU of the program."""
    try:
        return collect(Interpreter(sys.executable), MACHINE_SECONDS, {}, lambda doing: None, probes=PROBES)
    except (UserError, WorkError):
        return replace(evidence.snapshot_of(evidence.Evidence()), replies={})


def exit_code(report: Report) -> int:
    """0: it moves, or the files show nothing; 1: a cause was found; 3: none was found, or it could not be judged."""
    if any(entry.problem != SYMPTOM for entry in report.diagnosis):
        return 1
    row = next((row for row in report.checks if row.id == CHECK), None)
    return 0 if row and row.status is Status.PASS else 3
