"""Reads and judges saved nodes in several processes: each takes every n-th file, and sends what the aggregate needs."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from gpudoctor.fleet.collected import Seen
from gpudoctor.fleet.traits import Alike, Digest, Parts

MOST = 8  # processes; each needs some 60 MB
WORTH = 64  # nodes for each process; to start one costs as much as to read some
BATCH = 16  # nodes that are sent at once
OBJECTS = 50_000  # before a collection of garbage: more than one node, of which next to nothing is left when it was judged

Files = Sequence[tuple[str, str]]
"""Names of nodes and their files."""
See = Callable[[str, str], Seen]
"""Reads and judges one node; its `alike` numbers are those of the Alike that is given with it."""


class Batch(NamedTuple):
    """Nodes, and what none before them had of the parts to which their `alike` points."""

    seen: list[Seen]
    parts: list[tuple[Digest, Parts]]


def count(nodes: int) -> int:
    """How many processes are worth it. One if threads run, which do not survive in a copy of this process."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return max(1, min(MOST, len(os.sched_getaffinity(0)), nodes // WORTH))


def seen(files: Files, alike: Alike, see: See, processes: int) -> Iterator[Seen]:
    """Each node once, in any order. What a process leaves when it dies is read here."""
    usual = gc.get_threshold()
    gc.set_threshold(OBJECTS)
    try:
        yield from _seen(files, alike, see, processes) if processes > 1 else (see(*file) for file in files)
    finally:
        gc.set_threshold(*usual)


def _seen(files: Files, alike: Alike, see: See, processes: int) -> Iterator[Seen]:
    first, *files = files
    yield see(*first)  # what it loads and learns is then there for all
    left = dict(files)
    gc.collect()
    gc.freeze()  # a collection would write to each object, and so copy what the processes share
    started = [_start(files[number::processes], alike, see) for number in range(processes)]
    try:
        numbers = {pipe: list(range(len(alike.parts))) for _, pipe in started}
        while numbers:
            for pipe in wait(list(numbers)):
                assert isinstance(pipe, Connection)
                try:
                    batch: Batch = pipe.recv()
                except (EOFError, OSError):
                    del numbers[pipe]
                    continue
                numbers[pipe] += [alike.add(*part) for part in batch.parts]
                for node in batch.seen:
                    del left[node.name]
                    yield replace(node, alike={what: numbers[pipe][number] for what, number in node.alike.items()})
        yield from (see(*file) for file in left.items())
    finally:
        gc.unfreeze()
        for process, pipe in started:
            pipe.close()
            process.kill()
            process.join()


def _start(files: Files, alike: Alike, see: See) -> tuple[BaseProcess, Connection]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, files, alike, see), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _work(pipe: Connection, files: Files, alike: Alike, see: See) -> None:
    """Ends with its caller, because the pipe then has no reader."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller ends it
    sent = len(alike.parts)
    with contextlib.suppress(Exception):  # the caller reads again what is missing, and reports what is wrong
        for first in range(0, len(files), BATCH):
            found = [see(*file) for file in files[first : first + BATCH]]
            parts = alike.since(sent)
            sent += len(parts)
            pipe.send(Batch(found, parts))
