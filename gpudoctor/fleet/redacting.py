"""Redacts a fleet: each snapshot before it is judged, and the names of the nodes; equal names get equal tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from gpudoctor import redaction
from gpudoctor.files import opening
from gpudoctor.fleet.reading import Answers, Read, Reader, Unanswered
from gpudoctor.model import Report
from gpudoctor.redaction import remembering


class Redactor:
    """Redacts nodes one after the other. keep, words: as for redaction.redacted. warn: if the private map cannot be written."""

    def __init__(self, keep: Collection[str], words: Collection[str], warn: Callable[[str], None]) -> None:
        self._keep = keep
        self._words = words
        self._warn = warn
        self._tokens: Mapping[str, Mapping[str, str]] | None = None
        self._names: dict[str, str] = {}
        self._reader = Reader()

    def __call__(self, name: str, read: Read) -> tuple[str, Read]:
        shown = self._name(name)
        if isinstance(read, Unanswered):  # what ssh says holds names and addresses
            return shown, Unanswered(read.schema, shown, read.state)
        taken = opening.as_answers(read) if isinstance(read, Report) else read.snapshot
        done = redaction.redacted(taken, self._keep, {*self._words, *self._hidden(name)}, self._tokens)
        self._tokens = done.tokens.private()
        if failure := remembering.remember(taken.taken, done):
            self._warn(failure)
        if isinstance(read, Report):
            return shown, opening.of_answers(done.snapshot)
        return shown, self._reader.snapshot(done.snapshot)

    def _hidden(self, name: str) -> Collection[str]:
        return () if "hostname" in self._keep else (name,)

    def _name(self, name: str) -> str:
        if "hostname" in self._keep:
            return name
        return self._names.setdefault(name, f"node-{len(self._names) + 1}")


def kept_for_owner(read: Answers, keep: Collection[str], words: Collection[str]) -> tuple[Answers, redaction.Redacted]:
    """A snapshot as it is saved: redacted, in a file that has the name of its node."""
    done = redaction.redacted(read.snapshot, keep, words)
    return replace(read, snapshot=done.snapshot), done
