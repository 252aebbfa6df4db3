"""Asks one probe in this process and writes what happens as lines of JSON. Runs on Python 3.8, as the probes do."""

from __future__ import annotations

import importlib
import json
import sys

from gpudoctor.model import Reply
from gpudoctor.probes.machine import Machine


def write(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


job = json.load(sys.stdin)
probe = importlib.import_module("gpudoctor.probes." + sys.argv[1])
known = {question: Reply("ok", value) for question, value in job["known"].items()}
machine = Machine(known=known, at=lambda question, step: write(at=[question, step]), skip=tuple(job["skip"]))
for question, reply in probe.ask(machine):
    write(question=question, reply=vars(reply))
