"""Fixes for a text from Windows: the lines that its shells understand, and none that only bash does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.model import Fix

# Programs that exist under the same name and with the same arguments.
_PROGRAM = re.compile(
    r"""
    (?: (?:[.\w:-]*\\)* (?:python|pip)[\d.]*(?:\.exe)?    # also of a folder
      | conda | mamba | pixi | uv | poetry
      | nvidia-smi | nvcc | cmake | ninja | git | docker | ollama
      | wsl(?:\.exe)? | dir | where
    ) (?:\s|$)
    """,
    re.VERBOSE,
)
_BASH = re.compile(r"[$`]|\\$|\bsudo\b|/dev/|/usr/|/etc/|/tmp/|~/|[|<>]|'[^']*\"[^']*'")


def translated(fix: Fix) -> Iterator[Fix]:
    """The fix with one command a line, as cmd and older PowerShells know no &&; nothing if its command is for bash."""
    if fix.syntax in ("powershell", "cmd", "notebook", "dockerfile") or not fix.command:
        yield replace(fix, verify=_lines(fix.verify) or "", undo=_lines(fix.undo) or "")
    elif command := _lines(fix.command):
        yield replace(fix, command=command, verify=_lines(fix.verify) or "", undo=_lines(fix.undo) or "", syntax="powershell")


def _lines(command: str) -> str | None:
    """None if a part of it does not work in cmd and PowerShell; cmd knows no single quotes."""
    said = [part.strip() for line in command.splitlines() for part in re.split(r"\s&&\s|;\s(?![^'\"]*['\"])", line)]
    if any(_BASH.search(part) or not _PROGRAM.match(part) for part in said):
        return None
    return "\n".join(part.replace("'", '"') for part in said)
