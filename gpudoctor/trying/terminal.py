"""Gives the command a terminal for each stream that is one here, and pipes for the others."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import termios
import tty
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpudoctor.trying.warden import Streams

IN, OUT, ERR = 0, 1, 2


@dataclass
class Wiring:
    """How the command's streams are connected. sources: what gpudoctor reads -> where it copies that to, None for nowhere.

    keys: the side of the command's terminal to which what is typed is written; None without one.
    """

    streams: Streams
    sources: dict[int, int | None] = field(default_factory=dict)
    keys: int | None = None
    given_away: list[int] = field(default_factory=list)

    def resize(self) -> None:
        """Gives the command's terminal the size of the user's."""
        if self.keys is not None:
            same_size(IN, self.keys)

    def close_given(self) -> None:
        """After the start: the command has its own copies."""
        for number in self.given_away:
            os.close(number)
        self.given_away.clear()

    def close_source(self, number: int) -> None:
        del self.sources[number]
        self.keys = None if self.keys == number else self.keys
        os.close(number)

    def close(self) -> None:
        self.close_given()
        for number in [*self.sources]:
            self.close_source(number)


def of_user(out: int, err: int) -> Wiring:
    """The user's input, and a terminal for each stream that is one here. out, err: where the output is copied to."""
    sinks = {OUT: out, ERR: err}
    terminals = [number for number in (IN, OUT, ERR) if os.isatty(sinks.get(number, IN))]
    wiring = Wiring(Streams(IN, OUT, ERR))
    ends: dict[int, int] = {}
    if terminals:
        main, slave = pty.openpty()
        _same_look(sinks.get(terminals[0], IN), slave)
        wiring.sources[main] = next((sinks[number] for number in terminals if number in sinks), None)
        wiring.given_away.append(slave)
        wiring.keys = main if IN in terminals else None
        ends |= dict.fromkeys(terminals, slave)
    together = OUT not in ends and ERR not in ends and _are_one(out, err)
    for number in (OUT, ERR):
        if number not in ends:
            ends[number] = ends[OUT] if number == ERR and together else _pipe(wiring, sinks[number])
    stdin = ends.get(IN, IN if _is_open(IN) else _nothing(wiring))
    wiring.streams = Streams(stdin, ends[OUT], ends[ERR], wiring.given_away[0] if terminals else None)
    return wiring


def without_user() -> Wiring:
    """No input and no terminal; the output is kept only."""
    wiring = Wiring(Streams(IN, OUT, ERR))
    stdin, pipe = _nothing(wiring), _pipe(wiring, None)
    wiring.streams = Streams(stdin, pipe, pipe)
    return wiring


def _pipe(wiring: Wiring, sink: int | None) -> int:
    source, end = os.pipe()
    wiring.sources[source] = sink
    wiring.given_away.append(end)
    return end


def _nothing(wiring: Wiring) -> int:
    nothing = os.open(os.devnull, os.O_RDONLY)
    wiring.given_away.append(nothing)
    return nothing


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _are_one(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


def _same_look(terminal: int, slave: int) -> None:
    with contextlib.suppress(termios.error, OSError):
        termios.tcsetattr(slave, termios.TCSANOW, termios.tcgetattr(terminal))
    same_size(terminal, slave)


def same_size(terminal: int, other: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(other, termios.TIOCSWINSZ, fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))


@contextlib.contextmanager
def raw(wiring: Wiring) -> Iterator[bool]:
    """Passes each key on to the command, ^C too. Yields whether keys can be read: not in the background."""
    if wiring.keys is None or not _is_in_foreground():
        yield False
        return
    before = termios.tcgetattr(IN)
    tty.setraw(IN, termios.TCSADRAIN)
    try:
        yield True
    finally:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))
        with contextlib.suppress(termios.error):
            termios.tcsetattr(IN, termios.TCSADRAIN, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(IN) == os.getpgrp()
    except OSError:
        return False
