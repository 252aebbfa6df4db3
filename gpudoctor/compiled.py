"""YAML files as JSON, which is read many times faster. It is kept in `__pycache__`, as Python keeps its bytecode there."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

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
        _keep(kept, stamp + content)
    return content


def of_yaml(text: bytes) -> bytes:
    return msgspec.json.encode(msgspec.yaml.decode(text))


def _keep(kept: Path, content: bytes) -> None:
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
