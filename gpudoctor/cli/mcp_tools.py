"""The tools of `gpudoctor mcp`: they only read, and what they return is redacted. Their docstrings are what a model sees."""

from __future__ import annotations

import shlex
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gpudoctor import screen
from gpudoctor.choices import Level
from gpudoctor.errors import UserError

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup

ONE_AT_A_TIME = threading.Lock()  # two benchmarks at once would measure each other
MOST_CHARACTERS = 60_000

Form = Literal["markdown", "json"]


def check(
    level: Level = "quick",
    only: list[str] | None = None,
    python: str | None = None,
    expect_gpus: int | None = None,
    form: Form = "markdown",
) -> str:
    """Diagnose this machine: its GPUs, driver, CUDA, containers and Python environment. Returns what is wrong and how to fix it.

    level: "quick" puts no load on any GPU and takes about a second; "standard" benchmarks each idle GPU for up to 4 minutes;
    "full" also tests memory and compilers. only: ids of checks, areas or tags. python: the interpreter or environment to examine,
    one that is active or on PATH, or that the user has examined with gpudoctor before.
    Nothing on the machine is changed. Names, paths and addresses are redacted.
    """
    from gpudoctor import examining
    from gpudoctor.wanted import Wanted

    if python:
        _must_be_known(python)
    wanted = Wanted(level, tuple(only or ()), python=python, expect_gpus=expect_gpus)
    wanted.checks()
    with ONE_AT_A_TIME:
        found, _ = examining.examined(wanted, None, lambda doing: None, screen.note)
    return _report(found, form)


def replay(file: str, level: Level | None = None, form: Form = "markdown") -> str:
    """Diagnose a saved snapshot (gpudoctor check --save FILE) or show a saved report, without asking the machine."""
    from gpudoctor import checkup

    _not_endless(file)
    return _report(checkup.load(file, level), form)


def explain(what: str) -> str:
    """Explain an error message, a log or traceback, a code such as "Xid 79", or the id of a check, problem or practice.

    what: the text itself, or the path of a file.
    """
    from gpudoctor import api, checkup
    from gpudoctor.report import explained

    _not_endless(what)
    found = api.explain(what)
    if found.checkup is None:
        return _cut(found.text)
    shown = checkup.redacted(found.checkup, warn=screen.note)
    return _cut(shown.sweep(explained.render(shown.report)))


def diff(a: str, b: str) -> str:
    """Compare two snapshots or reports, of two machines or of two days, and name the difference that explains the problem."""
    from gpudoctor import checkup, comparing
    from gpudoctor.report import compared

    _not_endless(a, b)
    left, right = checkup.alike(checkup.load(a, "full"), checkup.load(b, "full"))
    one, other = left.opened("A"), right.opened("B")
    return _cut(right.sweep(compared.render(one, other, comparing.compare(one, other))))


def list_known(words: str = "", kind: Literal["checks", "problems", "practices"] = "checks") -> str:
    """List the checks, the problems that they find, or the practices, with all of these words in their id or title."""
    from gpudoctor.cli import list as listing

    asked = words.split()
    if kind == "problems":
        return _cut(listing.problems_as_text(listing.with_words(asked)))
    if kind == "practices":
        return _cut(listing.practices_as_text(listing.practices_with(asked)))
    return _cut(listing.as_text(listing.in_order(listing.matching(asked))))


def fix(problem: str | None = None, file: str | None = None) -> str:
    """Return the commands that fix this machine, or the machine of a snapshot, as text. Nothing is run: a person has to.

    problem: only the fixes of this problem.
    """
    from gpudoctor import catalog, checkup, examining
    from gpudoctor.repair import plan, script
    from gpudoctor.spelling import unknown
    from gpudoctor.wanted import Wanted

    if problem and problem not in catalog.problems():
        raise UserError(unknown("problem", problem, catalog.problems()))
    if file:
        _not_endless(file)
        found = checkup.load(file)
    else:
        with ONE_AT_A_TIME:
            found = examining.examined(Wanted("quick"), None, lambda doing: None, screen.note)[0]
    shown = checkup.redacted(found, warn=screen.note)
    steps = plan.ordered(plan.of_report([entry for entry in shown.diagnosis if problem in (None, entry.problem)]))
    if not steps:
        return f"{problem or 'Nothing that needs a fix'} was not found there.\n"
    notes = ["Names are redacted: gpudoctor fix prints the exact commands on the machine itself."]
    return _cut(shown.sweep(script.render(steps, str(shown.target.get("distribution", "")), notes)))


def _must_be_known(python: str) -> None:
    """A tool that only reads must not start any program that a client names: a log can have told the client to."""
    import os

    from gpudoctor import pythons, remembered, settings
    from gpudoctor.interpreter import Interpreter

    def path_of(named: str) -> str:
        return os.path.abspath(Interpreter(os.path.expanduser(named)).path)  # noqa: PTH100, PTH111 (a link stays a link)

    known = {candidate.path for candidate in pythons.candidates(os.environ)}
    if own := settings.current().python:
        known.add(path_of(own))
    if "/" not in python and python in {Path(path).name for path in known}:
        return
    if path_of(python) not in known and not remembered.has(path_of(python)):
        raise UserError(
            f"{python} is not active, not on PATH, and was not examined before. This server starts no other program that a "
            f"client names: run gpudoctor check --python {shlex.quote(python)} once yourself"
        )


def _not_endless(*words: str) -> None:
    """A pipe or a device could keep the server waiting for ever, even after its client has gone."""
    for word in words:
        try:
            mode = Path(word).stat().st_mode
        except (OSError, ValueError):  # not a file, or reading it says why
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UserError(f"{word} is not a regular file")


TOOLS: dict[str, Callable[..., str]] = {
    "check": check,
    "replay": replay,
    "explain": explain,
    "diff": diff,
    "list": list_known,
    "fix": fix,
}


def _report(found: Checkup, form: Form) -> str:
    from gpudoctor import checkup

    shown = checkup.redacted(found, warn=screen.note)
    return shown.render(form) if form == "json" else _cut(shown.render("markdown"))


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return text[:MOST_CHARACTERS].rpartition("\n")[0] + "\n[cut: ask for less, or read it with gpudoctor itself]\n"
