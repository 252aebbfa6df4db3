"""A fake machine as a folder, with a Python that says it lives in it."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.model import Reply
from gpudoctor.worker.probes.machine import Machine

SITE = "/venv/lib/python3.12/site-packages"


class Folder:
    """A fake machine: a folder, and the interpreter's own idea of where it is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str = "", mode: int = 0o644) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def link(self, path: str, target: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def ask(self, probe: Any) -> dict[str, Reply]:
        return dict(probe.ask(Machine(str(self.root))))


def python_lives_in(root: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A venv's Python at /venv of this folder, with none of the variables that name libraries or toolkits."""
    sysconfig.get_config_vars()  # reads a module of the real sys.path, once
    monkeypatch.setattr(sys, "path", [SITE])
    monkeypatch.setattr(sys, "prefix", "/venv")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "NCCL_CONF_FILE"):
        monkeypatch.delenv(name, raising=False)
    return Folder(root)
