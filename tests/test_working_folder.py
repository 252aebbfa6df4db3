"""What the current folder hides, found by the names of its files."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from gpudoctor.worker.probes import working_folder
from gpudoctor.worker.probes.machine import Machine


def hidden(folder: Path, installed: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Module -> what it hides, for a Python whose only packages are in `installed`."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.path", [str(installed), "/nowhere"])
    found = working_folder.hiding(Machine())
    assert found["folder"] == str(folder)
    return {one["module"]: one["hidden"] for one in found["hides"]}


def written(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("raise SystemExit\n")
    return folder


def test_files_and_packages_that_hide_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = written(tmp_path / "site", "torch/__init__.py", "numpy/__init__.py", "six.py", "yaml/__init__.py")
    own = written(
        tmp_path / "own",
        "random.py",
        "torch.py",
        "numpy/core.py",
        "six/__init__.py",
        "mmap" + EXTENSION_SUFFIXES[0],
        "sys.py",
        "train.py",
    )
    assert hidden(own, site, monkeypatch) == {"random": "", "torch": str(site), "six": str(site), "mmap": ""}


def test_a_package_and_a_folder_of_packages_hide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = written(tmp_path / "site", "torch/__init__.py", "random.py")
    assert hidden(site, site, monkeypatch) == {}
    assert hidden(written(tmp_path / "package", "__init__.py", "types.py"), site, monkeypatch) == {}
