"""Asks many nodes, and judges each as soon as it has answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.files import snapshot as snapshots
from gpudoctor.files import writing
from gpudoctor.fleet.aggregate import aggregated
from gpudoctor.fleet.collected import Seen
from gpudoctor.fleet.merging import Change, collector
from gpudoctor.fleet.model import NODE_SCHEMA, Fleet, State
from gpudoctor.fleet.reading import Answers, Read, Reader, Unanswered, kept
from gpudoctor.model import Snapshot

Ask = Callable[[Callable[[str, "Snapshot | None", State, str], None]], None]
Leaving = Callable[[Snapshot], Snapshot]


class Asking:
    """Collects what the nodes answer. change: as for merging. folder: where each answer is kept, changed by `leaving`."""

    def __init__(self, names: Sequence[str], change: Change | None, folder: Path | None, leaving: Leaving) -> None:
        self._names = names
        self._change = change
        self._folder = folder
        self._leaving = leaving
        self._reader = Reader()
        self._collecting = collector()
        self._seen: dict[str, Seen] = {}

    def done(self, name: str, answers: Snapshot | None, state: State, detail: str) -> None:
        """One node has ended. Only its first end counts."""
        if name in self._seen:
            return
        read: Read = Unanswered(NODE_SCHEMA, name, state, detail)
        if answers is not None:
            read = self._reader.snapshot(answers)
        self._keep(name, read, state, detail)
        shown, taken = self._change(name, read) if self._change else (name, read)
        self._seen[name] = self._collecting.seen(shown, taken, state, detail)

    def _keep(self, name: str, read: Any, state: State, detail: str) -> None:
        if not self._folder:
            return
        is_answer = isinstance(read, Answers)
        data = snapshots.dump(self._leaving(read.snapshot)) if is_answer else kept(name, state, detail)
        writing.write(self._folder / f"{name}.json", data)

    def fleet(self, interrupted: bool = False) -> Fleet:
        """The verdict; nodes that have not ended were interrupted."""
        for name in self._names:
            if name not in self._seen:
                self.done(name, None, State.FAILED, "interrupted" if interrupted else "it was not asked")
        return aggregated([self._seen[name] for name in self._names], self._collecting.alike)
