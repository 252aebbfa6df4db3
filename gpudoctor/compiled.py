"""YAML files as JSON, which is read many times faster. It is kept in `__pycache__`, as Python keeps its bytecode there."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec


def as_json(file: Path, keep: bool = not sys.dont_write_bytecode) -> bytes:
    """The content of a YAML file. keep: for the next time, if the folder can be written."""
    found = file.stat()
    stamp = b"%d %d\n" % (found.st_mtime_ns, found.st_size)
    kept = Path(importlib.util.cache_from_source(f"{file}.py")).with_suffix(".json")
    with contextlib.suppress(OSError):
        before, _, content = kept.read_bytes().partition(b"\n")
        if before + b"\n" == stamp:
            return content
    content = of_yaml(file.read_bytes())
    if keep:
        write(kept, stamp + content)
    return content


def of_yaml(text: bytes) -> bytes:
    return msgspec.json.encode(msgspec.yaml.decode(text))


def made_once(name: str, sources: Iterable[Path], make: Callable[[], Any]) -> Any:
    """What `make` returns, which JSON can hold; kept until one of the sources changes."""
    times = [file.stat().st_mtime_ns for file in sources]
    stamp = b"%d %d\n" % (len(times), max(times))
    kept = Path(importlib.util.cache_from_source(__file__)).with_name(f"{name}.json")
    with contextlib.suppress(OSError, msgspec.DecodeError):
        before, _, content = kept.read_bytes().partition(b"\n")
        if before + b"\n" == stamp:
            return msgspec.json.decode(content)
    made = make()
    if not sys.dont_write_bytecode:
        write(kept, stamp + msgspec.json.encode(made))
    return made


def write(kept: Path, content: bytes) -> None:
    """Nothing if the folder is not writable."""
    unfinished = kept.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(content)
            unfinished.replace(kept)
        finally:
            unfinished.unlink(missing_ok=True)


def keep_all(folder: Path) -> None:
    """Prepares every YAML file of a folder and those below it."""
    for file in sorted(folder.rglob("*.yaml")):
        as_json(file, keep=True)


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        keep_all(Path(folder))
