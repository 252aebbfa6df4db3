"""`gpudoctor explain` of evidence, and `gpudoctor check --log`: what people type, what comes out, which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import machine
import pytest
from each import each
from stand_in import run

from gpudoctor import doctor, source
from gpudoctor.checkup import Checkup
from gpudoctor.errors import UserError
from gpudoctor.files import snapshot
from gpudoctor.report.schema import schema

KERNEL_LOG = """\
[    0.000000] Linux version 6.8.0-88-generic (buildd@lcy02) #89-Ubuntu SMP
[    4.100000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build
[ 5000.200000] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[ 5000.300000] NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.
"""
FALLEN_OFF = "xid-79-fallen-off-bus"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "dmesg.txt"
    file.write_text(KERNEL_LOG)
    return file


def test_a_file_is_recognised_judged_and_explained(log: Path) -> None:
    result = run("explain", str(log))
    assert result.exit_code == 0
    assert result.stdout.startswith("Read    ")
    assert "dmesg.txt, 4 lines: kernel log" in " ".join(result.stdout.split())
    assert "1. A GPU has fallen off the bus (Xid 79)" in result.stdout
    assert f"More: gpudoctor explain {FALLEN_OFF}" in result.stdout


def test_standard_input_says_the_same_as_the_file(log: Path) -> None:
    from_file, from_pipe = run("explain", str(log)).stdout, run("explain", "-", input=KERNEL_LOG).stdout
    assert from_pipe.partition("\n\n")[2] == from_file.partition("\n\n")[2]


def test_json_is_a_report(log: Path) -> None:
    report = json.loads(run("explain", "--no-redact", "--format", "json", str(log)).stdout)
    jsonschema.validate(report, schema())
    assert [entry["problem"] for entry in report["diagnosis"]] == [FALLEN_OFF]
    assert report["evidence"] == [{"name": str(log), "kinds": ["kernel log"], "lines": 4}]


def test_what_was_saved_is_judged_the_same_again(log: Path, tmp_path: Path) -> None:
    saved = tmp_path / "evidence.json"
    shown = run("explain", str(log), "--save", str(saved)).stdout
    again = run("explain", str(saved)).stdout
    assert again.partition("DIAGNOSIS")[2] == shown.partition("DIAGNOSIS")[2] != ""
    report = json.loads(run("check", "--replay", str(saved), "--format", "json").stdout)
    assert [entry["problem"] for entry in report["diagnosis"]] == [FALLEN_OFF]


def test_a_log_beside_a_machine(log: Path, tmp_path: Path) -> None:
    taken = tmp_path / "h100.json"
    taken.write_bytes(snapshot.dump(machine.load("h100")))
    assert run("check", "--level", "quick", "--replay", str(taken)).exit_code == 0
    result = run("check", "--level", "quick", "--replay", str(taken), "--log", str(log))
    assert result.exit_code == 1
    assert "Xid 79" in result.stdout
    assert "dmesg.txt, 4 lines: kernel log" in " ".join(result.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report.html", "report.tar.gz"])
def test_a_page_and_a_bundle_are_the_snapshot_in_them(name: str, tmp_path: Path) -> None:
    taken = machine.load("driver-library-version-mismatch")
    packed = tmp_path / name
    Checkup(doctor.judge_at_its_level(taken, "quick"), taken).write(packed)
    result = run("explain", str(packed))
    assert "1. The driver was upgraded, but the old kernel module is still loaded" in result.stdout
    piped = run("explain", "-", input=packed.read_bytes())
    assert (piped.exit_code, piped.stdout) == (result.exit_code, result.stdout)


def test_nothing_known_is_said_and_is_no_success(tmp_path: Path) -> None:
    file = tmp_path / "shopping.txt"
    file.write_text("milk\nbread\n")
    result = run("explain", str(file))
    assert result.exit_code == 3
    assert "Nothing in this text is recognised." in result.stdout
    for words in ("what a nice day it is", "error", "device", "CUDA"):
        said = run("explain", words)
        assert (said.exit_code, "Nothing in this text is recognised." in said.stdout) == (3, True), words


@each(
    ("args", "words"),
    [
        (["explain", "no/such/file"], "no/such/file does not exist"),
        (["explain", "missing.log"], "missing.log does not exist"),
        (["explain", "."], "cannot read .: Is a directory"),
        (["explain", "gem"], "unknown check, problem or practice 'gem'; did you mean gemm"),
        (["explain", "gemm", "--save", "x.json"], "--save works on logs and messages only"),
        (["check", "--log", "no-such-file"], "cannot read no-such-file: No such file or directory"),
        (["check", "--log", "-", "--log", "-"], "standard input can be read only once"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(args: list[str], words: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_an_empty_file_and_a_broken_snapshot_are_said(tmp_path: Path) -> None:
    empty, broken, report = tmp_path / "empty.txt", tmp_path / "broken.json", tmp_path / "report.json"
    empty.write_text(" \n")
    broken.write_text('{"schema": "gpudoctor.snapshot/1", "replies": 3}')
    report.write_text('{"schema": "gpudoctor.report/1"}')
    for file, words in ((empty, "is empty"), (broken, "is a broken gpudoctor snapshot"), (report, "is a report, not a snapshot")):
        result = run("explain", str(file))
        assert result.exit_code == 2, result.output
        assert words in result.stderr


@each(
    ("args", "first"),
    [
        (["error 802"], "CUDA error 802: CUDA_ERROR_SYSTEM_NOT_READY"),
        (["XID_79:"], "Xid 79: GPU has fallen off the bus"),
        (["my", "gpu", "died", "with", "xid", "79"], "Xid 79: GPU has fallen off the bus"),
        (["driver_version"], "driver-version: a check in the area driver"),
        (["XIDS"], "xids: a check in the area health"),
        (["invalid device ordinal"], "Read    the given text, 1 line"),
        (["-bash: nvidia-smi: command not found"], "Read    the given text, 1 line"),
        (["--- " + "long pasted text " * 40 + "\nCUDA out of memory"], "Read    the given text, 2 lines"),
    ],
)
def test_what_people_type(args: list[str], first: str) -> None:
    result = run("explain", *args)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(first)


def test_several_ids_and_several_codes_are_explained_one_after_another() -> None:
    assert "\n\n\nno-driver-found: a problem" in run("explain", "xids", "no-driver-found").stdout
    assert "\n\n\nXid 48: " in run("explain", "Xid 79 then Xid 48").stdout


@pytest.mark.parametrize("nothing", [[""], ["  "]])
def test_an_empty_argument_is_no_file(nothing: list[str]) -> None:
    result = run("explain", *nothing)
    assert result.exit_code == 2
    assert "give an id, a code, a message or a file" in result.stderr


def test_a_number_of_several_codes_is_asked_for() -> None:
    result = run("explain", "9")
    assert result.exit_code == 2
    assert "'9' is ambiguous: Xid 9, CUDA error 9" in result.stderr


def test_a_file_in_a_closed_folder_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", closed)
    result = run("explain", "/root/there-is-no-such-file")
    assert result.exit_code == 2
    assert "cannot read /root/there-is-no-such-file: " in result.stderr


def test_fix_of_a_check_names_its_problems() -> None:
    result = run("fix", "driver-version")
    assert result.exit_code == 2
    assert "driver-version is a check; give one of its problems: driver-libraries-in-image" in result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xfd7zXZ\x00more", "is compressed; unpack it first: xz -dc"),
        (b"PK\x03\x04more", "is compressed; unpack it first: unzip -p"),
        (b"\x7fELF\x02\x01", "is not a text file"),
    ],
)
def test_what_is_no_text_is_said(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "evidence"
    file.write_bytes(content)
    result = run("explain", str(file))
    assert (result.exit_code, words in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("before", ["> [ 9000.1] ", "- ", 'we saw "', '{"_BOOT_ID":"a","MESSAGE":"'])
def test_a_quoted_kernel_line_is_one(before: str) -> None:
    quoted = before + "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."
    report = json.loads(run("explain", "-", "--format", "json", input=quoted).stdout)
    assert [entry["problem"] for entry in report["diagnosis"]] == [FALLEN_OFF]


def test_the_log_of_a_gpu_that_the_bus_no_longer_has_counts(log: Path, tmp_path: Path) -> None:
    taken = tmp_path / "no-gpu.json"
    taken.write_bytes(snapshot.dump(machine.load("no-gpu")))
    report = json.loads(run("check", "--level", "quick", "--replay", str(taken), "--log", str(log), "--format", "json").stdout)
    assert FALLEN_OFF in [entry["problem"] for entry in report["diagnosis"]]


def test_part_of_a_message_leads_to_the_messages_that_it_is_part_of() -> None:
    result = run("explain", "cuda unknown ERROR")
    assert result.exit_code == 3
    assert result.stdout.startswith("Nothing in this text is recognised. Known messages")
    assert "CUDA unknown error - this may be due to" in result.stdout
    assert "usually: gpudoctor explain " in result.stdout


@pytest.mark.parametrize("words", ["", "dear diary,\ntoday it rained\n"])
def test_a_file_that_tells_nothing_does_not_hide_what_another_tells(log: Path, tmp_path: Path, words: str) -> None:
    other = tmp_path / "other.txt"
    other.write_text(words)
    for files in ((other, log), (log, other)):
        result = run("explain", *map(str, files))
        assert result.exit_code == 0, result.output
        assert "fallen off the bus (Xid 79)" in result.stdout
        assert "unknown format" in result.stdout.replace("\n        ", " ")


def test_the_name_of_the_file_says_what_is_written(log: Path, tmp_path: Path) -> None:
    run("explain", str(log), "-o", str(tmp_path / "told.json"))
    jsonschema.validate(json.loads((tmp_path / "told.json").read_text()), schema())
    refused = run("explain", str(log), "-o", str(tmp_path / "told.html"))
    assert (refused.exit_code, "only text and JSON" in refused.stderr) == (2, True)
    assert not (tmp_path / "told.html").exists()


def test_closed_standard_input_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UserError, match="standard input is closed"):
        list(source.chunks("-"))


def test_a_line_that_two_patterns_match_counts_once(tmp_path: Path) -> None:
    line = "slurmstepd: error: Detected 1 oom_kill event in StepId=12.{}. Some of the step tasks have been OOM Killed.\n"
    for number, times in ((1, None), (2, 2)):
        (tmp_path / "job.out").write_text("".join(line.format(step) for step in range(number)))
        told = json.loads(run("explain", str(tmp_path / "job.out"), "--format", "json").stdout)
        assert told["diagnosis"][0]["evidence"].get("times") == times
