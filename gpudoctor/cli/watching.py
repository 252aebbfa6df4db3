"""While a job is watched: its command runs, a live screen or lines show it, and ^C ends it with the report."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpudoctor import screen
from gpudoctor.jobs.watching.watcher import Watcher
from gpudoctor.trying import laboratory, terminal
from gpudoctor.trying.start import Goal

if TYPE_CHECKING:
    from gpudoctor.checkup import Checkup
    from gpudoctor.jobs.watching.target import Target
    from gpudoctor.model import Reply

LINE_SECONDS = 10.0
LOOK_SECONDS = 0.5  # how long a key or a signal waits at most


def of_command(argv: Sequence[str], target: Target, out: int, err: int) -> tuple[Reply, int]:
    """What was seen of a command, and its exit code. out, err: descriptors to which its output is copied.

    UserError if it cannot be run.
    """
    from gpudoctor.trying import command

    words, variables = command.unwrapped(argv, os.environ)
    command.program(words[0], variables)
    watcher = Watcher(target)
    try:
        watcher.wait_until_ready()
        ran = laboratory.first(laboratory.ThisMachine(words, variables), Goal(), out, err).ran
    except BaseException:
        watcher.stopped()
        raise
    reply = watcher.stopped()
    if reply.value:
        reply.value["exit_code"] = ran.code
    return reply, 128 - ran.code if ran.code < 0 else ran.code


def until_over(target: Target, stream: bool, quiet: bool) -> Reply:
    """Until its time is over, all that is watched has ended, or ^C."""
    watcher = Watcher(target, is_live=True)
    show = _stream if stream else _live if _has_screen() else _lines
    try:
        with contextlib.suppress(KeyboardInterrupt):
            show(watcher, target, quiet)
    finally:
        with _uninterrupted():
            reply = watcher.stopped()
    return reply


def states(watcher: Watcher, keys: bool = False) -> Iterator[dict[str, Any] | None]:
    """The live states; None now and then while there is none. keys: q ends it."""
    while not watcher.has_ended:
        sources = [watcher.fileno(), *([terminal.IN] if keys else [])]
        ready = select.select(sources, [], [], LOOK_SECONDS)[0]
        if terminal.IN in ready and os.read(terminal.IN, 16).lower()[:1] in (b"q", b"\x03", b"\x1b", b""):
            return
        if watcher.fileno() not in ready:
            yield None
            continue
        yield from watcher.read()


def _has_screen() -> bool:
    return bool(sys.stdout) and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _stream(watcher: Watcher, target: Target, quiet: bool) -> None:
    for state in states(watcher):
        if state:
            show_line({"sample": state})


def _live(watcher: Watcher, target: Target, quiet: bool) -> None:
    from gpudoctor.cli.watch_screen import Screen

    with Screen(target) as shown:
        for state in states(watcher, keys=shown.has_keys):
            shown.update(state)


def _lines(watcher: Watcher, target: Target, quiet: bool) -> None:
    from gpudoctor.cli.watch_screen import line

    due = 0.0
    for state in states(watcher):
        if state and state["at"] >= due and not quiet:
            due = state["at"] + LINE_SECONDS
            screen.note(line(state))


def show_line(value: dict[str, Any]) -> None:
    from gpudoctor.cli import output

    output.show(json.dumps(value, ensure_ascii=False) + "\n")


def as_object(found: Checkup) -> Any:
    return json.loads(found.render("json"))


def exit_code(found: Checkup, fail_on: str) -> int:
    """3 if nothing could be judged."""
    statuses = {result.status.value for result in found.checks}
    if statuses & ({"fail"} if fail_on == "fail" else {"fail", "warn"}):
        return 1
    return 0 if statuses & {"pass", "warn", "fail"} else 3


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second ^C must not lose what was seen."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
