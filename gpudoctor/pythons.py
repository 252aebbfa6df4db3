"""Which Python to examine: the user's, not the one in which gpudoctor itself is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

QUESTION = "chosen-python"
OWN = "no other Python found"
_VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX")
_RECEIPTS = ("uv-receipt.toml", "pipx_metadata.json")  # at the top of the environment of an installed tool
_CACHED_TOOLS = ("archive-v", "environments-v")  # folders of uv's cache, where uvx makes environments


@dataclass(frozen=True)
class Candidate:
    """found: how it was found, such as "VIRTUAL_ENV". is_own: it is gpudoctor's environment, which the user did not activate."""

    path: str
    found: str
    is_own: bool = False


def candidates(environment: Mapping[str, str]) -> Iterator[Candidate]:
    """The active environment, then the Pythons on PATH, then gpudoctor's own. Not all of them can be run."""
    active = ((name, environment.get(name)) for name in _VARIABLES)
    yield from (Candidate(str(Path(folder) / "bin" / "python"), name) for name, folder in active if folder)
    yield from _on_path(environment.get("PATH", ""))
    if sys.executable:
        yield Candidate(sys.executable, OWN, is_own=True)


def _on_path(path: str) -> Iterator[Candidate]:
    """Without relative folders, in which anybody may have put a program, and without the environment of an installed tool."""
    folders = [folder for folder in dict.fromkeys(path.split(os.pathsep)) if Path(folder).is_absolute()]
    for name in ("python3", "python"):
        for folder in folders:
            file = Path(folder) / name
            is_own = _is_own_environment(Path(folder))
            if os.access(file, os.X_OK) and file.is_file() and not (is_own and _is_of_a_tool(Path(sys.prefix))):
                yield Candidate(str(file), f"{name} on PATH", is_own)


def _is_own_environment(folder: Path) -> bool:
    """Whether it is the bin folder of the virtual environment that gpudoctor runs in."""
    return sys.prefix != sys.base_prefix and os.path.realpath(folder) == os.path.realpath(Path(sys.prefix) / "bin")


def _is_of_a_tool(prefix: Path) -> bool:
    """Whether pipx, uv tool or uvx made this environment, for gpudoctor alone."""
    return any((prefix / name).exists() for name in _RECEIPTS) or any(part.startswith(_CACHED_TOOLS) for part in prefix.parts)
