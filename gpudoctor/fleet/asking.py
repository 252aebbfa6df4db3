"""Asks many nodes, and judges each as soon as it has answered, while others still answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from gpudoctor import collect
from gpudoctor.facts import shapes
from gpudoctor.files import snapshot as snapshots
from gpudoctor.files import writing
from gpudoctor.fleet.aggregate import aggregated
from gpudoctor.fleet.collected import Seen
from gpudoctor.fleet.merging import Change, collector
from gpudoctor.fleet.model import NODE_SCHEMA, Fleet, State
from gpudoctor.fleet.reading import Read, Reader, Unanswered, kept
from gpudoctor.model import Snapshot

WAITING = 128  # nodes whose answers are not judged yet; then the others wait


class _Ended(NamedTuple):
    name: str
    answers: Snapshot | None
    state: State
    detail: str


class Asking:
    """Collects what the nodes answer. change: as for merging. folder: where each answer is kept, changed by `leaving`."""

    def __init__(
        self, names: Sequence[str], change: Change | None, folder: Path | None, leaving: Callable[[Snapshot], Snapshot]
    ) -> None:
        self._names = list(names)
        self._change = change
        self._folder = folder
        self._leaving = leaving
        self._reader = Reader()
        self._collecting = collector()
        self._seen: dict[str, Seen] = {}
        self._ended: Queue[_Ended | None] = Queue(WAITING)
        self._failure: BaseException | None = None
        shapes.prepare()
        self._collecting.seen("", self._reader.snapshot(collect.snapshot({}, {})))  # loads what judges
        # Beside the engine, which must not miss a node because it judges another one.
        self._judging = threading.Thread(target=self._judge, daemon=True)
        self._judging.start()

    def done(self, name: str, answers: Snapshot | None, state: State, detail: str) -> None:
        """One node has ended. Only its first end counts."""
        self._ended.put(_Ended(name, answers, state, detail))

    def _judge(self) -> None:
        while ended := self._ended.get():
            if self._failure is None and ended.name not in self._seen:
                try:
                    self._take(ended)
                except BaseException as failure:  # raised again by `fleet`
                    self._failure = failure

    def _take(self, ended: _Ended) -> None:
        name, answers, state, detail = ended
        read: Read = Unanswered(NODE_SCHEMA, name, state, detail)
        if answers is not None:
            read = self._reader.snapshot(answers)
        if self._folder:
            data = snapshots.dump(self._leaving(answers)) if answers else kept(name, state, detail)
            writing.write(self._folder / f"{name}.json", data)
        shown, taken = self._change(name, read) if self._change else (name, read)
        self._seen[name] = self._collecting.seen(shown, taken, state, detail)

    def fleet(self) -> Fleet:
        """The verdict; nodes that have not ended were interrupted. WorkError if an answer could not be written."""
        self._ended.put(None)
        self._judging.join()
        if self._failure:
            raise self._failure
        for name in self._names:
            if name not in self._seen:
                self._take(_Ended(name, None, State.INTERRUPTED, ""))
        named = dict.fromkeys((*self._names, *self._seen))
        return aggregated([self._seen[name] for name in named], self._collecting.alike)
