"""Redacts a fleet: equal names get equal tokens on all nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gpudoctor import redaction
from gpudoctor.files import opening
from gpudoctor.fleet.reading import Read, Reader, Unanswered
from gpudoctor.model import Report, Snapshot
from gpudoctor.redaction import private_map, remembering


class Redactor:
    """Redacts snapshots one after the other. keep, words: as for redaction.redacted. warn: if the private map is not written.

    same_map: begin with the tokens of the last report.
    """

    def __init__(
        self, keep: Collection[str], words: Collection[str], warn: Callable[[str], None], same_map: bool = False
    ) -> None:
        self._keep = keep
        self._words = words
        self._warn = warn
        self._tokens: Mapping[str, Mapping[str, str]] | None = None
        if same_map:
            self._tokens = private_map.latest(private_map.read(private_map.default_path()))
        self._last: dict[str, redaction.Redacted] = {}
        self._names: dict[str, str] = {}
        self._reader = Reader()

    def snapshot(self, taken: Snapshot, words: Collection[str] = ()) -> Snapshot:
        done = redaction.redacted(taken, self._keep, {*self._words, *words}, self._tokens)
        self._tokens = done.tokens.private()
        self._last[taken.taken] = done
        return done.snapshot

    def node(self, name: str, read: Read) -> tuple[str, Read]:
        """A node whose name is redacted, too."""
        shown, words = self.shown(name), () if "hostname" in self._keep else (name,)
        if isinstance(read, Unanswered):  # what ssh says holds names and addresses
            return shown, Unanswered(read.schema, shown, read.state)
        if isinstance(read, Report):
            return shown, opening.of_answers(self.snapshot(opening.as_answers(read), words))
        return shown, self._reader.snapshot(self.snapshot(read.snapshot, words))

    def remember(self) -> None:
        """Writes what the tokens replace to the owner's private map."""
        said = {remembering.remember(taken, done) for taken, done in self._last.items()}
        for failure in filter(None, said):
            self._warn(failure)

    def shown(self, name: str) -> str:
        """The name of a node in the report."""
        return name if "hostname" in self._keep else self._names.setdefault(name, f"node-{len(self._names) + 1}")
