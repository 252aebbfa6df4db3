"""One run of the user's command, and what a repeat of it has to reach."""

from __future__ import annotations

import re
import shlex
import signal
from dataclasses import dataclass, replace

from gpudoctor.judging.experiments.outcome import Outcome
from gpudoctor.model import Reply
from gpudoctor.trying import laboratory
from gpudoctor.trying.laboratory import Place
from gpudoctor.trying.start import TIMEOUT, Goal, Ran
from gpudoctor.worker.measuring import cgroup_events

TIMES, LEAST_SECONDS = 3, 30.0  # a repeat that still runs after so many times the failed run, and at least so much longer, works
MOST_WORDS, MOST_TEXT = 2000, 20_000  # characters
ERROR = re.compile(
    r"""
    (?<![\w.]) ([A-Za-z_]\w*\.)* [A-Z]\w* (Error|Exception|Warning):\ \S
    | \b(fatal\ )?error:\ \S
    | :\ Assertion\ `
    """,
    re.VERBOSE,
)
BEFORE = re.compile(r"^\W*\[?rank\d+\]?:\s*")
NO_GOAL = "did not get far enough"


@dataclass
class Case:
    """One command, and what is known about why it did not work. ended_by: the signal (0: none) that asked gpudoctor to end."""

    place: Place
    goal: Goal
    first: Ran
    counted: str = ""
    ended_by: int = 0

    @property
    def failure(self) -> str:
        """Why the command did not work, "" if it did."""
        return self.goal.verdict(self.first)

    @property
    def kind(self) -> str:
        if self.ended_by:
            return "interrupted"
        if self.first.stopped == TIMEOUT:
            return "hangs"
        if self.first.code < 0:
            return "killed"
        return "failed" if self.goal.failure(self.first) else "slow"

    @property
    def repeated(self) -> Goal:
        """The goal of a repeat: one that runs far longer than the run that failed has got past the failure."""
        if self.kind == "slow" or self.goal.timeout is not None or self.goal.until:
            return self.goal
        return replace(self.goal, longer=max(TIMES * self.first.seconds, self.first.seconds + LEAST_SECONDS))

    def reply(self, not_repeated: str = "") -> Reply:
        value = {
            "line": shlex.join(self.place.argv),
            "failure": self.failure,
            "kind": self.kind,
            "seconds": round(self.first.seconds, 3),
            "waiting": list(self.first.waiting),
            "left": list(self.first.left),
            "not_repeated": not_repeated,
        }
        return Reply("ok", value, "", round(self.first.seconds, 2))

    @property
    def text(self) -> str:
        """What it printed, with what a shell adds about its end, and what the kernel counted meanwhile."""
        return "\n".join(filter(None, (self.first.text.rstrip("\n"), self.first.words, self.counted))) + "\n"


def started(place: Place, goal: Goal, out: int, err: int) -> Case:
    """Runs the command as the user would. out, err: descriptors to which its output is copied."""
    before = cgroup_events.counters()
    attempt = laboratory.first(place, goal, out, err)
    ran = attempt.ran
    by_key = signal.SIGINT if not ran.stopped and ran.code in (-signal.SIGINT, 128 + signal.SIGINT) else 0
    return Case(place, goal, ran, cgroup_events.since(before).removeprefix("; "), attempt.ended_by or by_key)


def outcome(ran: Ran, goal: Goal) -> Outcome:
    """How a run ended, for the search. A slow run worked; its figure is the metric, else the time that it took."""
    failure = goal.failure(ran)
    metric, unit = None, ""
    if goal.is_speed and not failure:
        metric, unit = (ran.figure, ran.unit) if goal.metric else (round(ran.seconds, 2), "s")
    words = (failure if ran.stopped else last_words(ran.text)) if failure else ""
    how = (ran.stopped or ran.manner or NO_GOAL) if failure else ""
    return Outcome(not failure, how, words, round(ran.seconds, 2), metric, unit)


def last_words(text: str) -> str:
    """The end of an output; its last line is the error, even if a launcher prints a summary after it."""
    end = text[-MOST_WORDS:].rstrip()
    lines = [line for line in text[-MOST_TEXT:].splitlines() if re.search(r"\w", line)]
    error = next((line for line in reversed(lines) if ERROR.search(line)), lines[-1] if lines else "")
    error = BEFORE.sub("", error).strip()
    return end if end.endswith(error) else f"{end}\n{error}"


def is_good(outcome: Outcome, goal: Goal) -> bool:
    """Whether it worked and was as fast as wanted."""
    if not outcome.worked or outcome.metric is None:
        return outcome.worked
    if goal.at_least is not None:
        return outcome.metric >= goal.at_least
    return goal.faster_than is None or outcome.metric < goal.faster_than
