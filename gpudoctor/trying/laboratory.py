"""Repeats a command on this machine without some suspected things, one run at a time."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from gpudoctor.judging.experiments.change import change
from gpudoctor.judging.experiments.suspect import Surroundings, Suspect
from gpudoctor.trying import terminal
from gpudoctor.trying.running import Running
from gpudoctor.trying.start import Goal, Ran, Start
from gpudoctor.trying.terminal import Wiring
from gpudoctor.worker import changed


class Place(Protocol):
    """Where a command runs: this machine or a container. variables: those of what starts it here."""

    @property
    def argv(self) -> tuple[str, ...]: ...

    @property
    def variables(self) -> Mapping[str, str]: ...

    def started(self, away: Sequence[Suspect], surroundings: Surroundings, has_terminal: bool) -> AbstractContextManager[Start]:
        """How the command is started without these suspects. OSError if that is not possible.

        The context removes what was made for it.
        """
        ...


@dataclass(frozen=True)
class ThisMachine:
    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(repr=False)

    @contextlib.contextmanager
    def started(self, away: Sequence[Suspect], surroundings: Surroundings, has_terminal: bool) -> Iterator[Start]:
        if not away:
            yield Start(self.argv, self.variables)
            return
        different = change(away, surroundings).as_value()
        folder = changed.room(different, self.variables) if different["fresh"] else ""
        try:
            yield Start(self.argv, changed.environment(different, self.variables, folder), different)
        finally:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Attempt:
    """One finished run, and the signal (0: none) that asked gpudoctor to end."""

    ran: Ran
    ended_by: int = 0


def first(place: Place, goal: Goal, out: int, err: int) -> Attempt:
    """The user's own run: with the user's input, terminal and signals. out, err: where its output goes."""
    wiring = terminal.of_user(out, err)
    return _run(place, (), Surroundings(), goal, wiring, is_first=True)


def again(place: Place, away: Iterable[Suspect], surroundings: Surroundings, goal: Goal) -> Attempt:
    """A repeat without these suspects: it has no input and no terminal, and its output is kept only."""
    return _run(place, tuple(away), surroundings, goal, terminal.without_user(), is_first=False)


def _run(
    place: Place, away: Sequence[Suspect], surroundings: Surroundings, goal: Goal, wiring: Wiring, is_first: bool
) -> Attempt:
    try:
        with place.started(away, surroundings, os.isatty(wiring.streams.stdin)) as start:
            running = Running(start, goal, wiring, is_first)
            return Attempt(running.wait(), running.ended_by)
    finally:
        wiring.close()
