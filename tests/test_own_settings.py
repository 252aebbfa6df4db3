"""Rungs run as the user's programs do, without a change to the user's folders, and with clean settings if that fails."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from each import each

from gpudoctor.worker.measuring import bench, programs, recorded, settings, square
from gpudoctor.worker.workloads.rung_load_inline import architectures

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(settings, "_theirs", {})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", os.environ["PATH"])
    for name in ("TRITON_HOME", "XDG_CACHE_HOME", *settings.CACHES, *settings.UNSET):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_our_folder_in_a_cache_of_the_user_leaves_nothing_behind(home: Path, tmp_path: Path) -> None:
    kept = home / ".triton/cache/abc/kernel.cubin"
    kept.parent.mkdir(parents=True)
    kept.touch()
    before = names(home)
    settings.as_user(str(tmp_path / "rung"), "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
    assert Path(os.environ["TRITON_CACHE_DIR"]).parent == home / ".triton/cache"
    Path(os.environ["TORCH_EXTENSIONS_DIR"], "built.so").touch()
    settings.remove(str(tmp_path / "rung"))
    assert names(home) == before


def test_what_another_program_writes_meanwhile_stays(home: Path, tmp_path: Path) -> None:
    settings.as_user(str(tmp_path / "rung"), "TRITON_CACHE_DIR")
    other = home / ".triton/cache/of-another"
    other.touch()
    settings.remove(str(tmp_path / "rung"))
    assert names(home) == [".triton", ".triton/cache", ".triton/cache/of-another"]


def test_a_cache_that_cannot_be_made_is_met_by_the_compiler(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    settings.as_user(str(tmp_path / "rung"), "TRITON_CACHE_DIR", "TMPDIR")
    assert os.environ["TRITON_CACHE_DIR"].startswith(str(tmp_path / "file/"))
    assert not (tmp_path / "missing").exists()
    settings.remove(str(tmp_path / "rung"))


def test_clean_settings_are_without_the_users(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--frobnicate")
    assert settings.clean(str(tmp_path), "TRITON_CACHE_DIR", "TMPDIR") == {"NVCC_APPEND_FLAGS": "--frobnicate"}
    assert "NVCC_APPEND_FLAGS" not in os.environ
    assert Path(os.environ["TRITON_CACHE_DIR"]).is_relative_to(tmp_path)
    assert Path(tempfile.gettempdir()).is_relative_to(tmp_path)


@pytest.mark.parametrize(("variable", "clean"), [("CC", "works"), ("OTHER", "ValueError: it is set")])
def test_a_rung_that_fails_is_tried_with_clean_settings(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, clean: str, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "broken")

    def work() -> float:
        if os.environ.get(variable):
            raise ValueError("it is set")
        return 0.0

    own = bench.Bench(str(tmp_path / "results"), [0])
    square.prepare(own)
    assert square.attempt(own, work, square.OtherProgram(own, work)) is None
    settings.remove(str(tmp_path / "results"))
    broken = bench.read(str(tmp_path / "results")).values["broken"]
    assert (broken["error"], broken["clean"]) == ("ValueError: it is set", clean)
    assert broken["unset"] == ({"CC": "broken"} if variable == "CC" else {})


@each(
    ("listed", "taken"),
    [
        ("", "9.0"),
        ("7.0;8.0;9.0+PTX", "9.0+PTX"),
        ("7.0 8.0", "8.0"),
        ("Hopper2", "Hopper2"),
        ("8.0 Hopper2 9.0a", "Hopper2;9.0a"),
    ],
)
def test_a_list_of_architectures_is_used_as_far_as_it_matters(listed: str, taken: str) -> None:
    assert architectures(listed, (9, 0)) == taken


def test_programs_get_the_folder_for_temporary_files_that_they_are_given(tmp_path: Path) -> None:
    show = ["sh", "-c", "echo $TMPDIR"]
    assert programs.run(show, 10, str(tmp_path)).output.strip() == str(tmp_path)
    assert programs.run(show, 10, str(tmp_path), TMPDIR="/users").output.strip() == "/users"


def test_only_new_lines_about_killed_processes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ["[   10.1] a[3]: segfault at 0 ip 0", "[   90.1] eth0: link up", "[   91.2] traps: b[4] trap invalid opcode ip:1"]
    monkeypatch.setattr("gpudoctor.worker.probes.kernel_log.ring_buffer", lambda machine: log)
    assert recorded.since(60.0) == log[2]
