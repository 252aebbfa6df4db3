"""The files of GPU packages against RECORD: missing, truncated and changed ones, and what is left out."""

from __future__ import annotations

import base64
import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.worker.probes import package_files
from gpudoctor.worker.probes.machine import Machine

SITE = "/site"
LIBRARY = "torch/lib/libtorch_cuda.so"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a real library, a module, a test, a header and an empty file."""
    monkeypatch.setattr(package_files, "import_path", lambda: [SITE])
    folder = tmp_path / SITE.strip("/")
    (folder / "torch/lib").mkdir(parents=True)
    (folder / "torch/test").mkdir()
    shutil.copy(sys.executable, folder / LIBRARY)
    for name in ("torch/__init__.py", "torch/test/big.py", "torch/lib/x.h"):
        (folder / name).write_text("x = 1\n")
    (folder / "torch/py.typed").touch()
    (folder / "torch/empty.py").touch()
    record(folder, "torch")
    return folder


def record(folder: Path, package: str, version: str = "2.11.0+cu130") -> Path:
    about = folder / f"{package}-{version}.dist-info"
    about.mkdir()
    files = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] == package]
    rows = [f"{path.relative_to(folder)},sha256=x,{path.stat().st_size}\n" for path in files]
    (about / "RECORD").write_text("".join(rows) + f"{about.name}/RECORD,,\n")
    return about


def found(site: Path) -> list[dict[str, Any]]:
    _, reply = next(package_files.ask(Machine(str(site.parent))))
    assert reply.status == "ok"
    packages: list[dict[str, Any]] = reply.value
    return packages


def test_complete_packages_have_no_differences(site: Path) -> None:
    assert found(site) == [{"name": "torch", "location": SITE, "checked": 3}]


@pytest.mark.parametrize(
    ("file", "damage", "kind"),
    [
        (LIBRARY, lambda path: path.unlink(), "missing"),
        (LIBRARY, lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "truncated"),
        (LIBRARY, lambda path: path.write_bytes(b""), "truncated"),
        (LIBRARY, lambda path: path.write_bytes(path.read_bytes() + b"more"), "changed"),
        ("torch/__init__.py", lambda path: path.write_text(""), "truncated"),
        ("torch/__init__.py", lambda path: path.write_text("x = 12345\n"), "changed"),
        ("torch/__init__.py", lambda path: path.unlink(), "missing"),
    ],
)
def test_damage_is_found(site: Path, file: str, damage: Any, kind: str) -> None:
    damage(site / file)
    (package,) = found(site)
    assert {key: package[key] for key in ("missing", "truncated", "changed") if key in package} == {
        kind: {"count": 1, "files": [file]}
    }


def test_what_nothing_loads_is_left_out(site: Path) -> None:
    (site / "torch/test/big.py").unlink()
    (site / "torch/lib/x.h").unlink()
    assert "missing" not in found(site)[0]


def test_packages_that_cannot_be_compared_are_left_out(site: Path) -> None:
    (site / "flask").mkdir()
    (site / "flask/__init__.py").touch()
    record(site, "flask", "3.0")
    (site / "torch-2.11.0+cu130.dist-info" / "INSTALLER").write_text("conda\n")
    assert found(site) == []
    (site / "torch-2.11.0+cu130.dist-info" / "INSTALLER").write_text("pip\n")
    (site / "torch-2.11.0+cu130.dist-info" / "RECORD").unlink()
    assert found(site) == []


def contents(site: Path) -> dict[str, Any]:
    [(question, reply)] = package_files.ask_contents(Machine(str(site.parent)))
    assert (question, reply.status) == ("package-hashes:torch", "ok")
    about: dict[str, Any] = reply.value
    return about


def test_the_content_of_files_of_the_right_size(site: Path) -> None:
    rows = []
    for path in (site / LIBRARY, site / "torch/__init__.py"):
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
        rows.append(f"{path.relative_to(site)},sha256={digest},{path.stat().st_size}\n")
    (site / "torch-2.11.0+cu130.dist-info/RECORD").write_text("".join(rows))
    library = site / LIBRARY
    whole = {"name": "torch", "location": SITE, "checked": 2, "bytes": library.stat().st_size + 6}
    assert contents(site) == whole
    with library.open("r+b") as file:
        file.seek(5000)
        file.write(b"\0damaged")
    assert contents(site) == {**whole, "other": {"count": 1, "files": [LIBRARY]}}
    assert "changed" not in found(site)[0]
