"""Asks one probe in this process, or in one fork for each setting of the stubs, and writes what happens as lines of JSON.

Runs on Python 3.8, as the probes do.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

from gpudoctor.worker.probes.machine import Machine
from gpudoctor.worker.reply import Reply


def write(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def ask() -> None:
    known = {question: Reply("ok", value) for question, value in job["known"].items()}
    machine = Machine(known=known, at=lambda question, step: write(at=[question, step]), skip=tuple(job["skip"]))
    for question, reply in probe.ask(machine):
        write(question=question, reply=vars(reply))


def fork(stub: dict[str, str]) -> int:
    """How it ended."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    os.environ.update(stub)
    ask()
    os._exit(0)


job = json.load(sys.stdin)
probe = importlib.import_module("gpudoctor.worker.probes." + sys.argv[1])
if "each" in job:
    importlib.import_module("pynvml")  # once, not in every fork
    for stub in job["each"]:
        write(ended=fork(stub))
else:
    ask()
