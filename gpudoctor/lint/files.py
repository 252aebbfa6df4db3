"""Which files are linted, what kind each is, and the errors for files that cannot be read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpudoctor.errors import UserError
from gpudoctor.lint import budget, compose, devcontainer, dockerfile, linting, scripts
from gpudoctor.lint.instructions import NoDockerfile
from gpudoctor.lint.model import Fault
from gpudoctor.lint.yaml_lines import NoYaml

_LARGEST = 1_000_000  # bytes; a file written by hand is a hundred times smaller
_MOST_BESIDE = 100  # other compose files of a folder
_PIPES = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")  # of a process substitution
_NAMES = {
    "dockerfile": re.compile(
        r"(?:dockerfile|containerfile)(?:[._-][\w.-]+)? | [\w.-]+\.(?:dockerfile|containerfile)",
        re.IGNORECASE | re.VERBOSE,
    ),
    "compose": re.compile(r"(?<![\w.-])(?:[\w.-]*[.-])?compose(?:[.-][\w.-]+)?\.ya?ml", re.IGNORECASE),
    "devcontainer": re.compile(r"(?:[\w-]*\.)?devcontainer\.json", re.IGNORECASE),
    "script": re.compile(r".+\.(?:sh|bash|zsh)", re.IGNORECASE),
    "makefile": re.compile(r"(?:gnu)?makefile|.+\.mk", re.IGNORECASE),
    "markdown": re.compile(r".+\.(?:md|markdown)", re.IGNORECASE),
}
_NOT_MEANT = re.compile(
    r".*\.(?: j2 | jinja2? | tmpl | template | in | txt | orig | bak | swp | py | dockerignore | json ) | .*~",
    re.IGNORECASE | re.VERBOSE,
)
_SKIPPED = frozenset(
    (".git", ".hg", ".svn", ".venv", "venv", "node_modules", "site-packages", "__pycache__", ".tox", ".mypy_cache")
)


@dataclass(frozen=True)
class Linted:
    """One file and its faults."""

    name: str
    faults: list[Fault]


def search(folder: Path) -> list[Path]:
    """The files of a folder whose name shows their kind, in the order of their paths; no links to what is outside of it."""
    found: list[Path] = []
    root = folder.resolve()
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        paths = (Path(here, name) for name in sorted(names))
        found += [path for path in paths if _is_inside(path, root) and _is_meant(path)]
    return found


def _is_inside(path: Path, root: Path) -> bool:
    return not path.is_symlink() or path.resolve().is_relative_to(root)


def kind_of_name(name: str) -> str:
    """dockerfile, compose, devcontainer, script, makefile, markdown, or "" for anything else."""
    kind = next((kind for kind in reversed(_NAMES) if _NAMES[kind].fullmatch(name)), "")
    return "" if kind == "dockerfile" and _NOT_MEANT.fullmatch(name) else kind


def _is_meant(path: Path) -> bool:
    """Whether to lint it as a part of its folder; most scripts and texts start no container."""
    kind = kind_of_name(path.name)
    if linting.KINDS.get(kind) != "script":
        return bool(kind)
    try:
        text = _decoded(_bytes(path), str(path))
    except UserError:
        return False
    return scripts.starts_containers(text)


def lint(path: Path, kind: str = "") -> Linted:
    text = _decoded(_bytes(path), str(path))
    return lint_text(text, kind or kind_of_name(path.name) or _kind_of(text, str(path)), str(path), path)


def lint_text(text: str, kind: str, name: str, path: Path | None = None) -> Linted:
    try:
        with budget.limited():
            parsed = _parsed(text, kind, path)
            return Linted(name, linting.lint(kind, parsed, text))
    except (NoDockerfile, NoYaml) as error:
        where = f"{name}:{error.line}" if error.line else name
        what = {"dockerfile": "Dockerfile", "compose": "compose file", "devcontainer": "devcontainer.json"}.get(kind, kind)
        raise UserError(f"{where}: not a {what}: {error}") from None
    except (RecursionError, MemoryError):
        raise UserError(f"{name}: nested too deeply to be read") from None
    except budget.TooMuch as error:
        raise UserError(f"{name}: {error}") from None


def _parsed(text: str, kind: str, path: Path | None) -> linting.Parsed:
    if not text.strip():
        raise (NoDockerfile if kind == "dockerfile" else NoYaml)(0, "it is empty")
    if kind == "dockerfile":
        return dockerfile.parse(text)
    if kind == "devcontainer":
        return devcontainer.parse(text)
    if linting.KINDS[kind] == "script":
        return scripts.parse(text, kind)
    if path is None:
        return compose.parse(text)
    return compose.parse(text, lambda name: _beside(path, name), frozenset(_gpu_elsewhere(path)))


def _kind_of(text: str, name: str) -> str:
    """The kind of a file whose name does not show it."""
    if re.search(r"^\s*FROM\s+\S", text, re.MULTILINE | re.IGNORECASE):
        return "dockerfile"
    if re.search(r"^services:", text, re.MULTILINE):
        return "compose"
    if text.startswith("#!") or scripts.starts_containers(text):
        return "script"
    raise UserError(f"{name}: neither a Dockerfile, a compose file nor a script (set its kind with --kind)")


def _bytes(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) and not str(path).startswith(_PIPES):
                raise UserError(f"{path}: not a regular file")
            os.set_blocking(file.fileno(), True)
            return _up_to_largest(file)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{path!s}: not a file name") from None


def _without_waiting(path: str, flags: int) -> int:
    """A FIFO or a terminal among the files of a folder would block for ever."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _up_to_largest(file: BinaryIO) -> bytes:
    return file.read(_LARGEST + 1)


def _decoded(data: bytes, name: str) -> str:
    if len(data) > _LARGEST:
        raise UserError(f"{name}: larger than {_LARGEST // 1_000_000} MB, too large for a file written by hand")
    if b"\0" in data:
        raise UserError(f"{name}: binary file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8 text (byte {error.start})") from None


def read(file: BinaryIO, name: str) -> str:
    """The text of standard input."""
    return _decoded(_up_to_largest(file), name)


def _beside(path: Path, name: str) -> str | None:
    """The text of a file that this one extends; None if it cannot be read."""
    try:
        return _decoded(_bytes(path.parent / name), name)
    except UserError:
        return None


def _gpu_elsewhere(path: Path) -> Iterator[str]:
    """Services that get a GPU in another compose file of the folder: `-f compose.yaml -f compose.gpu.yaml` merges them."""
    try:
        names = sorted(other.name for other in path.resolve().parent.iterdir())
    except OSError:
        return
    others = [name for name in names if name != path.name and kind_of_name(name) == "compose"]
    for name in others[:_MOST_BESIDE]:
        text = _beside(path, name)
        if text and ("nvidia" in text or "gpu" in text):
            try:
                services = compose.parse(text).services
            except NoYaml:
                continue
            yield from (service.name for service in services if service.asks_for_gpu)
