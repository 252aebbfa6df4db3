"""The question of `gpudoctor fix --run`: whatever comes at whatever moment is an answer."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Terminal

ROOT = Path(__file__).parent.parent
PROGRAM = """\
import signal, sys
from gpudoctor.repair.asking import Ended, ask
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
try:
    print("answer:", repr(ask("Run it? ")))
    print("answer:", repr(ask("And now? ")))
except KeyboardInterrupt:
    print("interrupted")
except Ended:
    print("nobody there")
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal([sys.executable, "-c", PROGRAM], {**os.environ, "PYTHONPATH": str(ROOT)}, tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("run", range(12))
def test_an_interruption_in_the_moment_of_the_question_is_not_lost(terminal: Terminal, run: int) -> None:
    terminal.expect(r"Run it\?")
    terminal.type("\x03")
    terminal.expect("interrupted")


def test_what_another_handler_raises_comes_out(terminal: Terminal) -> None:
    terminal.expect(r"Run it\?")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.wait() == 143


def test_lines_that_were_typed_ahead_answer_one_question_each(terminal: Terminal) -> None:
    terminal.type("y\nn\n")
    terminal.expect(r"answer: 'y\\n'")
    terminal.expect(r"answer: 'n\\n'")


def test_the_end_of_input_is_said(terminal: Terminal) -> None:
    terminal.expect(r"Run it\?")
    terminal.type("\x04")
    terminal.expect("nobody there")
