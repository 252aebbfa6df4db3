"""What a command line says about the program that it starts: its variables and its Python."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoctor.errors import UserError
from gpudoctor.trying import runners

PYTHON = re.compile(r"python(\d(\.\d+)?)?")
WRAPPERS = frozenset(
    (
        *("nice", "nohup", "time", "timeout", "taskset", "numactl", "stdbuf", "ionice", "chrt", "setsid"),
        *("srun", "mpirun", "mpiexec", "nsys", "ncu"),
    )
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def unwrapped(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command without a leading `env NAME=VALUE`, and its variables: they can then be taken away, too."""
    rest, variables = [*argv], dict(environment)
    if Path(rest[0]).name != "env":
        return tuple(rest), variables
    del rest[0]
    while rest:
        if rest[0] in ("-u", "--unset") and len(rest) > 1:
            variables.pop(rest[1], None)
            del rest[:2]
        elif found := _ASSIGNMENT.fullmatch(rest[0]):
            variables[found[1]] = found[2]
            del rest[0]
        else:
            break
    is_plain = bool(rest) and not rest[0].startswith("-")
    return (tuple(rest), variables) if is_plain else (tuple(argv), dict(environment))


def program(name: str, variables: Mapping[str, str]) -> str:
    """The file of a program. UserError if there is none, or if it cannot be run."""
    if not name:
        raise UserError("the command is empty")
    if "/" in name:
        file = Path(name)
        try:
            file.stat()
        except FileNotFoundError:
            raise UserError(f"{name} does not exist") from None
        except OSError as failure:
            raise UserError(f"{name} cannot be run: {failure.strerror}") from None
        if file.is_dir():
            raise UserError(f"{name} is a folder, not a program")
        if not os.access(file, os.X_OK):
            raise UserError(f"{name} is not executable{_how_to_run(file)}")
        return name
    found = shutil.which(name, path=variables.get("PATH", os.defpath))
    if not found:
        here = Path(name)
        raise UserError(f"{name}: command not found{_how_to_run(here) if here.is_file() else ''}")
    return found


def _how_to_run(file: Path) -> str:
    return f" (for a Python script: gpudoctor why -- python {file})" if file.suffix == ".py" else ""


def python_of(argv: Sequence[str], variables: Mapping[str, str]) -> str | None:
    """The Python that runs the command: itself, that of its first line (torchrun), or of an environment (uv run); None if
    unknown."""
    file = program(argv[0], variables)
    name = Path(file).name
    if PYTHON.fullmatch(name):
        return file
    if name in WRAPPERS:
        return _wrapped(argv[1:], variables)
    if found := runners.python_of(name, argv[1:], variables):
        return found
    try:
        with Path(file).open("rb") as script:
            first = script.readline(1 << 12)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = shlex.split(first[2:].decode("utf-8", "replace"), posix=True) if first.count(b'"') % 2 == 0 else []
    if words and Path(words[0]).name == "env":
        words = [shutil.which(word, path=variables.get("PATH", "")) or "" for word in words[1:] if not word.startswith("-")]
    return words[0] if words and PYTHON.fullmatch(Path(words[0]).name) else None


def _wrapped(words: Sequence[str], variables: Mapping[str, str]) -> str | None:
    """The Python of the first word that is a program with one: what stands before are options of the wrapper."""
    for at, word in enumerate(words):
        if not word.startswith("-") and shutil.which(word, path=variables.get("PATH", os.defpath)):
            with contextlib.suppress(UserError):
                if found := python_of(words[at:], variables):
                    return found
    return None


def folder_of(argv: Sequence[str]) -> str:
    """The folder that Python searches first: that of the script, or the current one for -c and -m; "" if unknown."""
    if not PYTHON.fullmatch(Path(argv[0]).name):  # a launcher, such as torchrun
        script = next((word for word in argv[1:] if word.endswith(".py")), "")
        return str(Path(script).resolve().parent) if script else ""
    words = iter(argv[1:])
    for word in words:
        if word in ("-I", "-P") or re.fullmatch(r"-[bBdEhiOqRsSuvVx]*[IP]\w*", word):
            return ""
        if word in ("-W", "-X"):
            next(words, None)
        elif word in ("-c", "-m", "-") or re.fullmatch(r"-[a-zA-Z]*[cm]", word):
            return str(Path.cwd())
        elif not word.startswith("-"):
            return str(Path(word).resolve().parent)
    return str(Path.cwd())
