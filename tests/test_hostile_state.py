"""State and output files: locks that others hold, folders without room, homes that are missing, links that others plant."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import run
from waiting import HOPELESS_SECONDS

from gpudoctor import bootstrap, folders, remembered, state
from gpudoctor.errors import WorkError
from gpudoctor.files import baseline, writing
from gpudoctor.interpreter import Interpreter
from gpudoctor.redaction import private_map, remembering

CHECK = [sys.executable, "-m", "gpudoctor", "check", "--level", "quick"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gpudoctor"


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_lock_that_another_process_holds_is_waited_for_a_moment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LOCK_SECONDS", 0.1)
    path = home / "redaction-map.json"
    with state.locked(path), path.with_suffix(".lock").open() as other:
        with pytest.raises(OSError, match="locked by another process"), state.locked(path):
            pass
        assert other.fileno()
    with state.locked(path):
        pass


@pytest.mark.slow
def test_a_held_lock_costs_the_map_and_no_report(home: Path, tmp_path: Path) -> None:
    state.make_folder(home)
    out = tmp_path / "report.json"
    with (home / "redaction-map.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        environment = {**os.environ, "CUDA_HOME": "/home/zorv/cuda"}
        command = [*CHECK, "--redact", "-o", str(out)]
        done = run(command, capture_output=True, text=True, env=environment)
    assert json.loads(out.read_text())["checks"]
    assert "redaction-map.json cannot be written (locked by another process)" in done.stderr


def test_state_is_for_its_owner_alone(home: Path, umask: int) -> None:
    remembered.remember("2026-11-22T00:00:00Z", "/x/python")
    with state.locked(home / "baseline.json"):
        private_map.write(private_map.default_path(), private_map.Map(schema=private_map.SCHEMA, reports={}))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.iterdir())}
    assert modes.pop("gpudoctor") == 0o700
    assert set(modes.values()) == {0o600}
    assert remembered.of("2026-11-22T00:00:00Z") == "/x/python"
    assert remembered.of("2026-11-22T00:00:01Z") == ""


def test_a_temporary_file_of_a_killed_process_is_in_nobodys_way(home: Path) -> None:
    state.make_folder(home)
    (home / f".redaction-map.json.{os.getpid()}").touch()
    state.write(home / "redaction-map.json", b"x")
    assert (home / "redaction-map.json").read_bytes() == b"x"


@pytest.mark.parametrize("given", ["state", "./state", "~nobody-of-that-name/x", ""])
def test_a_relative_state_home_is_ignored(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.state() == tmp_path / ".local/state/gpudoctor"


def test_without_a_home_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "not-there")
    with pytest.raises(folders.NoHome):
        folders.state()
    assert baseline.read().gpus == {}
    assert remembered.of("2026-11-22T00:00:00Z") == ""
    remembered.remember("2026-11-22T00:00:00Z", "/x/python")
    assert remembering.recognised("user-1", "2026-11-22T00:00:00Z") == "user-1"


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a name")
def test_a_user_without_a_home_gets_a_report(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
    unknown = "import pwd, sys; pwd.getpwuid = {}.__getitem__; sys.argv[0] = 'gpudoctor'; "
    as_user = [sys.executable, "-c", unknown + "from gpudoctor.__main__ import main; main()", *CHECK[3:]]
    done = subprocess.run(as_user, capture_output=True, text=True, env=environment, cwd="/")
    assert done.returncode in (0, 1), done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["missing", "closed", "a file"])
def test_without_a_temporary_folder_there_is_a_report(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    if kind == "closed":
        place.mkdir(0o500)
    elif kind == "a file":
        place.touch()
    done = run(CHECK, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(place)})
    assert done.returncode in (0, 1), done.stderr


FULL = """
import os
real = os.makedirs
def full(path, *rest, **more):
    if any(path.startswith(place) for place in {places!r}):
        raise OSError(28, "No space left on device")
    return real(path, *rest, **more)
os.makedirs = full
"""


def python_where_is_no_room(tmp_path: Path, *places: str) -> str:
    """An interpreter for which these folders are full."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(FULL.format(places=places))
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.slow
def test_a_full_temporary_folder_is_not_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    heard: dict[str, object] = {}
    Interpreter(python_where_is_no_room(tmp_path, str(tmp_path / "tmp"))).run({"seconds": 60.0}, heard.update)
    assert heard["end"] is True
    assert list((tmp_path / "tmp").glob("gpudoctor-*")) == []  # Podman leaves folders there to a user without a session
    assert str(heard["folder"]).startswith(bootstrap.PLACES)
    assert not Path(str(heard["folder"])).exists()


def test_without_room_anywhere_that_is_said(tmp_path: Path) -> None:
    where = Interpreter(python_where_is_no_room(tmp_path, "/"))
    with pytest.raises(WorkError, match=r"no temporary folder has room for gpudoctor's files .*No space left on device"):
        where.run({"seconds": 60.0}, lambda message: None)


SAVE = """
import sys
from gpudoctor.cli.baseline import _keep
from gpudoctor.files import baseline

path = baseline.default_path()
new = baseline.Baseline(schema=baseline.SCHEMA, gpus={sys.argv[1]: baseline.Saved(name="x", taken="y", figures={})})
_keep(path, new, is_state=True)
"""


@pytest.mark.slow
def test_baselines_that_are_saved_at_once_are_all_kept(home: Path) -> None:
    saving = [subprocess.Popen([sys.executable, "-c", SAVE, f"GPU-{number}"]) for number in range(6)]
    assert [process.wait(HOPELESS_SECONDS) for process in saving] == [0] * 6
    assert len(baseline.read().gpus) == 6


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can plant the link of another user")
@pytest.mark.parametrize(("mode", "uid", "is_followed"), [(0o1777, 1234, False), (0o1777, 0, True), (0o755, 1234, True)])
def test_a_link_that_another_user_planted_is_not_followed(mode: int, uid: int, is_followed: bool, tmp_path: Path) -> None:
    shared, aim = tmp_path / "shared", tmp_path / "aim"
    shared.mkdir()
    shared.chmod(mode)
    aim.write_bytes(b"old")
    (shared / "report.md").symlink_to(aim)
    os.lchown(shared / "report.md", uid, uid)
    if is_followed:
        writing.write(shared / "report.md", b"new")
    else:
        with pytest.raises(WorkError, match="a symbolic link of another user"):
            writing.must_be_writable(shared / "report.md")
        with pytest.raises(WorkError, match="a symbolic link of another user"):
            writing.write(shared / "report.md", b"new")
    assert aim.read_bytes() == (b"new" if is_followed else b"old")


def test_a_file_is_never_more_open_than_the_one_it_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").touch(0o600)
    modes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: modes.append(stat.S_IMODE(os.fstat(file).st_mode)))
    writing.write(tmp_path / "old", b"x")
    assert modes == [0o600]


def test_a_named_pipe_without_a_reader_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "READER_SECONDS", 0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WorkError, match="no program has read this named pipe"):
        writing.write(tmp_path / "pipe", b"new")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writing.write(tmp_path / "pipe", b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)


def test_a_file_behind_an_open_descriptor_is_appended_to(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"old ")
    with (tmp_path / "log").open("ab") as file:
        path = Path(f"/dev/fd/{file.fileno()}")
        writing.must_be_writable(path)
        writing.write(path, b"new")
    assert (tmp_path / "log").read_bytes() == b"old new"
    with pytest.raises(WorkError, match="Bad file descriptor"):
        writing.must_be_writable(Path("/dev/fd/99999"))


def test_a_device_without_room_is_one_line() -> None:
    with pytest.raises(WorkError, match="cannot write /dev/full: No space left on device"):
        writing.write(Path("/dev/full"), b"new")
