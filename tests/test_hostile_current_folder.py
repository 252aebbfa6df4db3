"""Nothing is imported from the current folder, whatever its files are called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.containers.target.inside import attached, shell
from gpudoctor.interpreter import Interpreter
from gpudoctor.quoting import quoted

pytestmark = pytest.mark.slow

NAMES = sorted({*sys.stdlib_module_names, "pynvml", "torch", "vllm", "cupy", "gpudoctor", "sitecustomize"})
JOB = {"seconds": 60.0}
CHECK = [str(Path(sys.executable).parent / "gpudoctor"), "check", "--level", "quick", "--format", "json"]


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A current folder with a file of every name; one that runs leaves its name."""
    folder, run = tmp_path / "here", tmp_path / "run"
    folder.mkdir()
    run.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(run / name)!r}, 'w').close()\nraise SystemExit('{name} of the folder')\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield
    assert sorted(path.name for path in run.iterdir()) == []


@pytest.mark.usefixtures("trap")
def test_by_a_check() -> None:
    done = subprocess.run(CHECK, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    found = [entry for entry in json.loads(done.stdout)["diagnosis"] if entry["problem"] == "current-folder-shadows-module"]
    assert {"random", "typing", "subprocess"} <= {*found[0]["evidence"]["modules"]}


@pytest.mark.usefixtures("trap")
@pytest.mark.parametrize("safe", [None, "", "1"])
def test_by_the_worker(safe: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if safe is not None:
        monkeypatch.setenv("PYTHONSAFEPATH", safe)
    replies: dict[str, object] = {}
    Interpreter(sys.executable).run(JOB, lambda message: replies.update({message.get("question", ""): message.get("reply")}))
    assert {"interpreter", "packages", "probe:packages"} <= replies.keys()
    environment = replies["environment"]
    assert isinstance(environment, dict)
    assert environment["value"].get("PYTHONSAFEPATH") == (safe or None)


@pytest.mark.usefixtures("trap")
def test_by_the_shell_in_a_container() -> None:
    heard: list[object] = []
    with attached("a container", ["sh", *shell("0123", sys.executable)], "0123", lambda script: None) as inside:
        assert (inside.python, inside.has_ctypes) == (sys.executable, True)
        inside.run(JOB, heard.append)
    assert heard


@pytest.mark.usefixtures("trap")
def test_by_the_tools_of_a_project() -> None:
    assert "of the folder" not in str(quoted(["vllm", "cupy"], sys.executable))


def test_by_python_with_m(tmp_path: Path) -> None:
    """Python itself puts the current folder on the path here; it is taken off before anything of ours is imported."""
    for name in ("json", "enum", "signal", "click", "msgspec", "random", "platformdirs", "selectors"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the one')")
    done = subprocess.run([sys.executable, "-m", "gpudoctor", *CHECK[1:]], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr


def test_an_interrupt_of_the_imports_is_quiet(tmp_path: Path) -> None:
    """The import of a module that the command line needs takes until the signal has come."""
    (tmp_path / "click.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(600)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    script = "from gpudoctor.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (130, "")


def test_names_in_pythonpath_do_not_hide_the_standard_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty entry is the current folder, as `PYTHONPATH=$PYTHONPATH:/x` leaves it."""
    for name in ("random", "json", "tempfile", "signal", "selectors", "mmap", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the one')")
    (tmp_path / "extra.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/x")
    replies: dict[str, dict[str, object]] = {}
    Interpreter(sys.executable).run(JOB, lambda message: replies.update({message.get("question", ""): message.get("reply", {})}))
    assert replies["interpreter"]["status"] == "ok"
    assert str(tmp_path) in str(replies["interpreter"]["value"])
