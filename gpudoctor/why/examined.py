"""What is known about the place where a command failed: a quick check, its output as evidence, and what it inherits."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor import evidence, examining, experiment
from gpudoctor.errors import UserError, WorkError
from gpudoctor.facts import Facts
from gpudoctor.facts.command import NAME, QUESTION
from gpudoctor.facts.known import known
from gpudoctor.interpreter import Interpreter
from gpudoctor.judging.experiments.suspect import HIDDEN, LIMITS, Surroundings
from gpudoctor.judging.experiments.verdict import gpus
from gpudoctor.model import Snapshot
from gpudoctor.trying import command
from gpudoctor.trying.warden import cpu_limit
from gpudoctor.wanted import Wanted
from gpudoctor.why.case import Case
from gpudoctor.worker import changed
from gpudoctor.worker.probes.environment import PRIVATE

ASK_SECONDS = 10.0
SECRET = re.compile("TOKEN|SECRET|PASS|KEY|AUTH|CREDENTIAL")
SAFE_PATH_SINCE = (3, 11)  # PYTHONSAFEPATH

Tell = Callable[[str], None]


def examined(case: Case, wanted: Wanted, tell: Tell, warn: Tell) -> Snapshot:
    """A quick check of where the command ran, with its output as evidence; the output alone if nothing can be examined."""
    told = evidence.of_text(case.text, NAME) if case.text.strip() else None
    with _variables(case.place.variables):
        try:
            found, _ = examining.examined(wanted, told, tell, warn)
            answers = found.snapshot
        except (UserError, WorkError) as failure:
            if wanted.python and not wanted.inside:
                return examined(case, replace(wanted, python=None), tell, warn)
            warn(f"only the output is explained: {failure}")
            return described(case)
    assert answers
    return replace(answers, replies={**answers.replies, QUESTION: case.reply()})


def described(case: Case) -> Snapshot:
    """The command and its output alone."""
    told = evidence.of_text(case.text if case.text.strip() else "\n", NAME)
    answers = evidence.snapshot_of(told)
    return replace(answers, level="quick", replies={**answers.replies, QUESTION: case.reply()})


def not_repeated(case: Case, answers: Snapshot, why: str) -> Snapshot:
    return replace(answers, replies={**answers.replies, QUESTION: case.reply(why)})


def inherited(case: Case, wanted: Wanted, answers: Snapshot) -> Surroundings:
    """What the command inherits here, as its own Python says; as gpudoctor's says if that is not known or does not run."""
    if wanted.inside:
        return of_facts(Facts(answers))
    for python in filter(None, (wanted.python, sys.executable)):
        heard: dict[str, Any] = {}
        with _variables(case.place.variables), contextlib.suppress(UserError, WorkError):
            Interpreter(python).run({"inherited": True, "seconds": ASK_SECONDS}, heard.update)
        if "inherited" in heard:
            found = experiment.surroundings(heard["inherited"])
            break
    else:
        with _variables(case.place.variables):
            found = experiment.surroundings(changed.inherited())
    is_asked = wanted.python and known(lambda: Facts(answers).python.version >= SAFE_PATH_SINCE, False)
    folder = command.folder_of(case.place.argv) if is_asked else ""
    variables = {**dict.fromkeys(_unread(case.place.variables), HIDDEN), **found.variables}
    return replace(
        found,
        variables=variables,
        current_folder=folder,
        gpus=gpus(Facts(answers)),
        limits={**found.limits, "cpu_seconds": tuple(map(changed.amount, cpu_limit()))},
    )


def _unread(variables: Mapping[str, str]) -> Iterator[str]:
    """Those that may be unset, but whose values are never read: addresses of peers, services and proxies."""
    return (name for name in variables if PRIVATE.search(name.upper()) and not SECRET.search(name.upper()))


def of_facts(facts: Facts) -> Surroundings:
    """What is inherited inside a container, as far as its snapshot shows."""
    limits = {name: known(lambda name=name: getattr(facts.limits, name)) for name in LIMITS}  # type: ignore[misc]
    return Surroundings(
        variables=known(lambda: facts.environment.variables, {}),
        limits={name: limit for name, limit in limits.items() if limit},
        gpus=gpus(facts),
    )


@contextlib.contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """The variables of the command, for what is started meanwhile."""
    before = dict(os.environ)
    os.environ.update(wanted)
    for name in before.keys() - wanted.keys():
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
