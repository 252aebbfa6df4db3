"""Shell scripts, Makefiles and the shell blocks of Markdown files: the containers that they start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpudoctor.lint import shell
from gpudoctor.lint.instructions import Text
from gpudoctor.lint.run_options import Run
from gpudoctor.lint.run_options import parse as parse_options
from gpudoctor.lint.variables import unquoted

ENGINES = ("docker", "nvidia-docker", "podman", "nerdctl")
STARTS = re.compile(r"\b(?:docker|podman|nerdctl)\b.{0,200}?\s(?:run|create)\b")
_WRAPPERS = ("timeout", "nohup", "srun", "xargs", "sg", "nice", "stdbuf", "unbuffer", "retry", "watch")
_GLOBAL_WITH_VALUE = ("-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--root", "--url", "-n", "--namespace")
_ASSIGNED = re.compile(
    r"""
    \s*(?: (?:export|local|readonly|declare(?:\ -\w+)?)\s+ )?
    (?P<name>[A-Za-z_]\w*) (?P<sign>=|\+=)
    (?P<value> "[^"]*" | '[^']*' | [^\s;&|"'()]* )
    \s*(?:;|\#.*)?
    """,
    re.VERBOSE,
)
_OF_MAKE = re.compile(
    r"""
    (?: (?:export|override)\s+ )?
    (?P<name>[A-Za-z_]\w*) \s* (?P<sign>\+=|[:?]*=) \s*
    (?P<value>.*?) \s*
    (?: \s\#.* )?
    """,
    re.VERBOSE,
)
_FENCE = re.compile(r"[\s>]*(`{3,}|~{3,})\s*\{?\.?([\w+-]*)")
_LANGUAGES = ("", "sh", "bash", "shell", "zsh", "console", "shell-session", "sh-session", "shellsession", "terminal")
_PROMPT = re.compile(r"(\s*)(?:\(\S+\) )?(?:[\w.@:~/-]+)?[$%] (?=\S)")
_MOST_LINES = 200  # of one command


@dataclass(frozen=True)
class Script:
    """starts: line -> the first line of the command that it belongs to."""

    runs: tuple[Run, ...]
    starts: dict[int, int] = field(default_factory=dict)


def starts_containers(text: str) -> bool:
    return STARTS.search(text.replace("\\\n", " ")) is not None


def parse(text: str, kind: str) -> Script:
    """kind: script, makefile or markdown."""
    lines = text.splitlines()
    if kind == "markdown":
        lines = _shell_blocks(lines)
    values = _values(lines, _OF_MAKE if kind == "makefile" else _ASSIGNED)
    runs: list[Run] = []
    starts: dict[int, int] = {}
    at = 0
    while at < len(lines):
        first, at = at, at + 1
        if not STARTS.search(_unfinished(lines, first)) or lines[first].lstrip().startswith("#"):
            continue
        while at < min(len(lines), first + _MOST_LINES) and lines[at - 1].rstrip().endswith("\\"):
            at += 1
        starts.update(dict.fromkeys(range(first + 1, at + 1), first + 1))
        pieces = [_of_make(line) for line in lines[first:at]] if kind == "makefile" else lines[first:at]
        for command in shell.commands(_text(pieces, first + 1), values):
            runs += _run(command)
    return Script(tuple(runs), starts)


def _unfinished(lines: list[str], at: int) -> str:
    """A line, and the next one if it continues: `docker \\` before `run`."""
    line = lines[at]
    return f"{line.rstrip()[:-1]} {lines[at + 1]}" if line.rstrip().endswith("\\") and at + 1 < len(lines) else line


def _text(lines: list[str], first: int) -> Text:
    starts, length = [], 0
    for number, line in enumerate(lines, first):
        starts.append((length, number))
        length += len(line.rstrip()) + 1
    return Text("\n".join(line.rstrip() for line in lines), tuple(starts))


def _run(command: shell.Command) -> Iterator[Run]:
    for at, word in enumerate(command.words[:8]):
        engine = word.text.rsplit("/", 1)[-1]
        if engine not in ENGINES or not (at == 0 or command.program in _WRAPPERS or command.program.startswith("-")):
            continue
        rest = list(command.words[at + 1 :])
        while rest and rest[0].text.startswith("-"):
            del rest[: 1 + (rest[0].text in _GLOBAL_WITH_VALUE)]
        if rest and rest[0].text == "container":
            del rest[0]
        if rest and rest[0].text in ("run", "create"):
            yield parse_options(rest[1:], engine, rest[0].line)
        return


def _values(lines: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Variables that are set once, to a value that the file shows."""
    values: dict[str, str] = {}
    seen: set[str] = set()
    for line in lines:
        found = pattern.fullmatch(line) if "=" in line else None
        if not found:
            continue
        name, value = found["name"], _of_make(found["value"]) if pattern is _OF_MAKE else found["value"]
        if name in seen or found["sign"] == "+=" or "$(" in value or "`" in value:
            values.pop(name, None)
        else:
            values[name] = unquoted(value, values)
        seen.add(name)
    return values


def _of_make(line: str) -> str:
    """A line of a recipe as the shell sees it, with make's variables as the shell's."""
    line = re.sub(r"^(\s*)[@+-]+(?=\s*\S)", r"\1", line)
    return re.sub(r"\$\$|\$\(([A-Za-z_]\w*)\)", lambda found: f"${{{found[1]}}}" if found[1] else "$", line)


def _shell_blocks(lines: list[str]) -> list[str]:
    """The lines of fenced blocks of a shell, without prompts; the others are empty."""
    kept: list[str] = []
    fence, shows = "", False
    for line in lines:
        found = _FENCE.match(line)
        if found and not fence:
            fence, shows = found[1], found[2].lower() in _LANGUAGES
            kept.append("")
        elif found and found[1].startswith(fence) and not found[2]:
            fence = ""
            kept.append("")
        else:
            kept.append(_PROMPT.sub(r"\1", line, count=1) if fence and shows else "")
    return kept
