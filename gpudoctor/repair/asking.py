"""A question at a terminal that handles interruptions reliably.

A signal that comes after Python last looked and before the system call waits until a key is pressed, or for ever. A signal
handler of Python writes a byte to the wakeup descriptor at once, for which this waits too.
https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys


class Ended(Exception):
    """End of input."""


def ask(question: str) -> str:
    """Reads one line. Raises KeyboardInterrupt, or what a signal handler raises."""
    waking, woken = socket.socketpair()
    with waking, woken:
        woken.setblocking(False)
        waking.setblocking(False)
        before = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        try:
            sys.stdout.write(question)
            sys.stdout.flush()
            return _line(woken)
        finally:
            signal.set_wakeup_fd(before)


def _line(woken: socket.socket) -> str:
    keyboard = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([keyboard, woken], [], [])
        if woken in ready:
            woken.recv(4096)
        elif text := os.read(keyboard, 4096):
            return text.decode("utf-8", "replace")
        else:
            raise Ended
