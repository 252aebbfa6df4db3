"""The hand-written pages of docs/: their blocks, and a session in which the commands of a page run one after the other.

Above a block may stand comments that a reader does not see: `<!-- machine: CASE -->`, the machine of tests/machines that is asked
from here on; `<!-- not run: WHY -->`, whose commands of gpudoctor are still parsed with all of their options;
`<!-- file: NAME -->`, a file that the following commands find; `<!-- output -->`, what the block before prints;
`<!-- output, its first lines: N -->`, the beginning of that; `<!-- output of: COMMAND -->`, what another one prints. A command
ends with 0 unless its line says otherwise: `# exit code 1: ...`.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import machine
import pytest
from click.testing import CliRunner

from gpudoctor import collect, experiment, interpreter, measure, quoting, remembered
from gpudoctor.cli import main
from gpudoctor.model import Reply, Snapshot

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
COMPARISON = "comparison.md"  # tables of a day; tests/test_comparison.py looks after them
REAL = ("tar", "cat", "python3", "grep")  # run as they are
_BLOCK = re.compile(r"(?P<comments>(?:^<!-- .*? -->\n)*)^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_EXIT = re.compile(r"#.*\bexit code (\d+)")


class Block(NamedTuple):
    language: str
    text: str
    comments: dict[str, str]
    place: tuple[int, int]  # of the text in the page


class Line(NamedTuple):
    """commands: of a pipe, the words of each. into: the file that takes the output."""

    text: str
    commands: list[list[str]]
    into: str
    code: int


def pages() -> list[Path]:
    return sorted(path for path in DOCS.glob("*.md") if path.name != COMPARISON)


def blocks(page: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(page):
        pairs = (line[5:-4].partition(": ") for line in match["comments"].splitlines())
        comments = {name: said for name, _, said in pairs}
        found.append(Block(match["language"], match["text"], comments, match.span("text")))
    return found


def lines(block: Block) -> Iterator[Line]:
    for text in block.text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|>")
        lexer.whitespace_split = True
        words = list(lexer)
        into = words[words.index(">") + 1] if ">" in words else ""
        words = words[: words.index(">")] if ">" in words else words
        commands: list[list[str]] = [[]]
        for word in words:
            if word == "|":
                commands.append([])
            else:
                commands[-1].append(word)
        if words:
            code = _EXIT.search(text)
            yield Line(text, commands, into, int(code[1]) if code else 0)


def parse(words: list[str]) -> None:
    """Raises click's error where the command or one of its options is not there; nothing is done."""
    command: click.Command = main
    context = click.Context(main, **main.context_settings)
    name, rest = "gpudoctor", words[1:]
    while isinstance(command, click.Group):
        name, *rest = rest
        found = command.get_command(context, name)
        assert found, f"there is no command {name}"
        command = found
    command.make_context(name, rest, context)


@dataclass
class Session:
    """One page, read from top to bottom in a folder of its own, on a machine that is not there."""

    folder: Path
    case: str = "h100-measured"
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    said: str = ""

    def prepare(self, patch: pytest.MonkeyPatch) -> None:
        patch.chdir(self.folder)
        patch.setenv("HOME", str(self.folder))
        patch.setenv("XDG_STATE_HOME", str(self.folder / "state"))
        patch.setenv("COLUMNS", "80")
        patch.setattr(collect, "collect", self._collect)
        patch.setattr(measure, "measure", self._measure)
        patch.setattr(experiment, "experiments", lambda *given: (machine.load(self.case).experiments, 0))
        patch.setattr(quoting, "quoted", lambda *given: {})
        patch.setattr(remembered, "of", lambda taken: "/opt/train/.venv/bin/python")
        patch.setattr(interpreter, "this_interpreter", lambda: interpreter.Interpreter("/usr/bin/python3"))

    def _collect(self, where: Any, seconds: float, expected: Any, *others: Any) -> Snapshot:
        taken = machine.load(self.case)
        return replace(taken, expected={**taken.expected, **expected}, measured={})

    def _measure(self, *given: Any) -> tuple[dict[str, Reply], int]:
        return machine.load(self.case).measured, 0

    def run(self, block: Block) -> None:
        self.case = block.comments.get("machine", self.case)
        if "file" in block.comments:
            path = self.folder / block.comments["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "sh":
            for line in lines(block):
                self._line(line, runs="not run" not in block.comments)
        elif block.language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, "page", "exec"), self.names)
            self.said = printed.getvalue()

    def _line(self, line: Line, runs: bool) -> None:
        if not runs:
            for words in line.commands:
                if words[0] == "gpudoctor":
                    parse(words)
            return
        said, code = "", 0
        for words in line.commands:
            said, code = self.command(words, said)
        assert code == line.code, f"{line.text}: exit code {code}\n{said}"
        self.said = said
        if line.into:
            (self.folder / line.into).write_text(said)

    def command(self, words: list[str], given: str = "") -> tuple[str, int]:
        """What it says and how it ends."""
        if words[0] == "gpudoctor":
            words = [str(Path(word).expanduser()) if word.startswith("~") else word for word in words]
            done = CliRunner().invoke(main, words[1:], input=given, prog_name="gpudoctor")
            if done.exception and not isinstance(done.exception, SystemExit):
                raise done.exception
            return done.stdout or done.stderr, done.exit_code
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), words
            return "", 0
        assert words[0] in REAL, f"{words[0]}: say why it is not run"
        ran = subprocess.run(words, input=given, capture_output=True, text=True, cwd=self.folder)
        return ran.stdout + ran.stderr, ran.returncode
