"""Writing: files are whole or untouched, pipes may close, progress leaves no trace."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stand_in import TAKEN, Doctor, environment, few_checks, raising, run

from gpudoctor.cli import output
from gpudoctor.errors import WorkError
from gpudoctor.files import snapshot


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Doctor:
    few_checks(monkeypatch)
    return Doctor(monkeypatch)


@pytest.mark.parametrize("option", ["-o", "--save"])
def test_missing_folder_is_said_before_the_work(stub: Doctor, tmp_path: Path, option: str) -> None:
    result = run("check", option, str(tmp_path / "no" / "file"))
    assert (result.exit_code, stub.asked) == (3, [])
    assert result.stderr == f"Error: cannot write {tmp_path}/no/file: there is no folder {tmp_path}/no\n"


def test_a_folder_is_no_file(stub: Doctor, tmp_path: Path) -> None:
    assert run("check", "-o", str(tmp_path)).stderr == f"Error: cannot write {tmp_path}: Is a directory\n"


@pytest.mark.parametrize("option", ["-o", "--save"])
def test_full_disk_leaves_everything_as_it_was(
    stub: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    (tmp_path / "old").write_text("old")
    monkeypatch.setattr(os, "fsync", raising(OSError(errno.ENOSPC, "No space left on device")))
    result = run("check", option, str(tmp_path / "old"))
    assert result.exit_code == 3
    assert result.stderr.endswith(f"Error: cannot write {tmp_path}/old: No space left on device\n")
    said = result.stdout if option == "--save" else result.stderr
    assert "User-space driver upgraded, old kernel module still loaded" in said  # what was measured is not lost
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("old", "old")]


def test_a_new_file_has_the_mode_of_the_umask_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        output.write(tmp_path / "new", b"")
    finally:
        os.umask(before)
    (tmp_path / "old").touch(0o600)
    output.write(tmp_path / "old", b"x")
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in ("new", "old")] == ["0o640", "0o600"]


@pytest.mark.parametrize("name", ["報" * 84 + ".md", "a" * 252 + ".md"])
def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path, name: str) -> None:
    output.write(tmp_path / name, b"x")
    output.write(tmp_path / name, b"y")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(name, b"y")]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    output.write(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"x"


def test_a_device_is_written_to_and_stays_a_device() -> None:
    output.must_be_writable(Path("/dev/null"))
    output.write(Path("/dev/null"), b"x")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(WorkError, match="No space left on device"):
        output.write(Path("/dev/full"), b"x")


@pytest.fixture(params=["schema", "text", "json"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A command line that writes a lot to standard output."""
    (tmp_path / "snapshot").write_bytes(snapshot.dump(TAKEN))
    args = ["check", "--format", request.param, "--replay", str(tmp_path / "snapshot")]
    script = "from gpudoctor import catalog; from gpudoctor.cli import main; catalog.checks = dict; main({!r})"
    return [sys.executable, "-c", script.format(["schema"] if request.param == "schema" else args)]


@pytest.mark.slow
def test_closed_pipe_is_quiet(writer: list[str]) -> None:
    with subprocess.Popen(writer, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == (0 if writer[-1].endswith("(['schema'])") else 3)  # no check looked at anything


@pytest.mark.slow
def test_full_standard_output_is_said(writer: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(writer, stdout=full, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.returncode == 3
    assert process.stderr == "Error: cannot write to standard output: No space left on device\n"


@pytest.mark.slow
def test_other_encodings_lose_signs_and_not_the_report() -> None:
    assert output._encodable("✓ 2 × GPU… 90 °C 日", "ascii") == "+ 2 x GPU... 90 ?C ?"
    assert output._encodable("✓", "utf-8") == "✓"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    with output.progress() as tell:
        tell("Collecting nvml, cuda")
        tell("Asking a-probe-with-a-very-long-name")
        tell("Asking \x1b[2J")
    assert terminal.getvalue().split(output._ERASE_LINE) == [
        "",
        "0 s  Collecting nvml, cuda",
        "0 s  Asking a-probe-with-a-v…",
        r"0 s  Asking \x1b[2J",
        "",
    ]


def test_progress_in_a_log_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    times = iter((0.0, 4.0, 10.0, 12.0, 20.0))
    monkeypatch.setattr("gpudoctor.cli.output.time.monotonic", lambda: next(times))
    with output.progress(10) as tell:
        for done in range(4):
            tell(f"{done} of 4 nodes")
    assert capsys.readouterr().err == "10 s  1 of 4 nodes\n20 s  3 of 4 nodes\n"


def test_progress_is_silent_elsewhere(stub: Doctor) -> None:
    assert run("check").stderr == ""
