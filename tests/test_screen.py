"""What `gpudoctor check` shows: versions, verdict, one command for each problem, what to type next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import machine
import pytest
from each import each
from stand_in import Doctor, few_checks, run
from test_report import REPORT

from gpudoctor import catalog, doctor
from gpudoctor.coverage import coverage
from gpudoctor.knowledge import expectations
from gpudoctor.model import Difference, Reply, Report, Result, Skip, Status
from gpudoctor.report import heading, html, markdown, quiet, terminal


def of(case: str) -> Report:
    return doctor.judge(machine.load(case), doctor.select(catalog.checks(), "quick"))


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Doctor:
    few_checks(monkeypatch)
    return Doctor(monkeypatch)


def test_versions_are_on_top_of_every_report_for_people() -> None:
    report = of("h100-measured")
    software = "torch 2.11.0+cu130, jax 0.11.2, cuDNN 9.19.0, NCCL 2.28.9, nvcc 13.0.88, no Docker or Podman"
    assert heading.software(report) == software
    top = " ".join(terminal.render(report).partition("No problems")[0].split())
    assert f"driver 580.159.04, CUDA 13.0 Python 3.12.3 at /opt/torch/.venv/bin/python3 Stack {software}" in top
    assert software in html.render(report)
    assert f"- Software: {software}" in markdown.render(report)


@each(
    ("versions", "said"),
    [
        ({}, ""),
        ({"torch": None, "cudnn": None, "nccl": None, "nvcc": None}, "torch not installed, nvcc not installed"),
        ({"torch": "2.13.0+cpu", "cudnn": None, "nccl": None}, "torch 2.13.0+cpu"),
        ({"torch": "2.8.0+cu128", "cudnn": None, "nccl": "2.27.3"}, "torch 2.8.0+cu128, NCCL 2.27.3"),
        ({"docker": "", "podman": None}, "docker (version unknown)"),
        ({"docker": None, "podman": None}, "no Docker or Podman"),
        ({"docker": None}, ""),
        (
            {"docker": "28.5.2", "podman": None, "container_toolkit": "1.17.8"},
            "docker 28.5.2, NVIDIA Container Toolkit 1.17.8",
        ),
    ],
)
def test_only_what_is_known_is_named(versions: dict[str, str | None], said: str) -> None:
    assert heading.software(replace(REPORT, facts={"versions": versions})) == said


def test_each_problem_has_one_command_and_v_has_the_rest() -> None:
    brief, full = terminal.render(REPORT), terminal.render(REPORT, verbose=True)
    assert "Fix (1 of 2): Load the new kernel module" in brief
    assert "       sudo reboot\n" in brief
    assert not {"Or:", "Undo:", "Evidence:", "Check that it worked:"} & set(brief.split("\n   "))
    assert "modprobe nvidia\n" not in brief
    for said in ("Or: Reload the modules", "modprobe nvidia\n", "Undo:", "Evidence:", "Check that it worked:"):
        assert said in full


def test_a_first_fix_without_a_command_is_followed_by_one_that_has_one() -> None:
    first, other = REPORT.diagnosis[0].fixes
    by_hand = replace(first, title="Ask for it", command="", verify="")
    report = replace(REPORT, diagnosis=(replace(REPORT.diagnosis[0], fixes=(by_hand, by_hand, other)),))
    said = " ".join(terminal.render(report).split())
    assert "Fix (2 of 3): Ask for it (interrupts running work, needs root, needs a reboot) Or: Reload the modules" in said


def test_quiet_is_two_lines(stub: Doctor) -> None:
    result = run("check", "-q")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "✗ fail: 2 problems and 1 warning, the most severe first.",
        "User-space driver upgraded, old kernel module still loaded; Fewer GPUs answer than there are; "
        "The GPU slows down because it is too hot",
    ]


def test_quiet_names_the_gpus_of_a_healthy_machine() -> None:
    first, second = quiet.render(of("h200-x2")).splitlines()
    assert first == "✓ pass: No problems found, but 1 check got no answer or measurement: -v shows why."
    assert second == "2 × NVIDIA H200, driver 580.159.04, CUDA 13.0"


@pytest.mark.parametrize("words", [("-q", "-v"), ("-q", "--format", "json")])
def test_quiet_is_text(stub: Doctor, words: tuple[str, ...]) -> None:
    result = run("check", *words)
    assert (result.exit_code, stub.asked) == (2, [])


def test_a_written_report_is_summed_up_on_stderr(stub: Doctor, tmp_path: Path) -> None:
    result = run("check", "-o", str(tmp_path / "r.json"), "--save", str(tmp_path / "s.json"))
    assert result.stdout == ""  # scripts capture it, and it may be the file
    assert result.stderr.splitlines() == [
        "✗ fail: 2 problems and 1 warning, the most severe first.",
        "  User-space driver upgraded, old kernel module still loaded",
        "  Fewer GPUs answer than there are",
        "  The GPU slows down because it is too hot",
        f"Wrote {tmp_path / 'r.json'}, not redacted: --redact makes it safe to share",
        f"After the fixes: gpudoctor verify {tmp_path / 'r.json'}",
        f"Wrote {tmp_path / 's.json'}, redacted: nothing private was left in it",
    ]
    assert "✗ fail" in run("check", "-q", "-o", str(tmp_path / "r.txt")).stderr.splitlines()[0]
    assert "Seen:" in (tmp_path / "r.txt").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), ["gpudoctor fix", "gpudoctor report -o report.html"]),
        (("--level", "quick"), ["gpudoctor fix", "gpudoctor report --level quick -o report.html"]),
        (("--python", "/a b"), ["gpudoctor fix --python '/a b'", "gpudoctor report --python '/a b' -o report.html"]),
        (("--format", "json"), []),
        (("-q",), []),
    ],
)
def test_next_steps_repeat_what_was_examined(stub: Doctor, words: tuple[str, ...], said: list[str]) -> None:
    hints = run("check", *words).stdout.partition("\nNext: ")[2]
    assert [line.strip().partition("  ")[0] for line in hints.splitlines()] == said


def test_a_replayed_machine_is_not_this_one(stub: Doctor, tmp_path: Path) -> None:
    run("check", "--save", str(tmp_path / "s.json"))
    assert "Next:" not in run("check", "--replay", str(tmp_path / "s.json")).stdout
    written = run("check", "--replay", str(tmp_path / "s.json"), "-o", str(tmp_path / "r.json"))
    assert "verify" not in written.stderr


def test_a_machine_without_a_gpu_is_told_in_a_few_lines() -> None:
    said = terminal.render(of("no-gpu"))
    assert len([line for line in said.splitlines() if line]) <= 8
    assert "blocked" not in said
    assert "✗ fail  This machine has no NVIDIA GPU. In a virtual machine:" in said
    assert "other checks found no problem; " in said


def test_expected_gpus_are_named_where_there_are_none() -> None:
    taken = machine.load("no-gpu")
    by_number = replace(taken, expected={"gpus": 8})
    rows = [{"model": "H100", "count": 4}, {"model": "T4", "count": 4}]
    by_name = replace(taken, expectation={"schema": expectations.SCHEMA, "gpus": rows, "from": "file"})
    for each_taken in (by_number, by_name):
        said = terminal.render(doctor.judge(each_taken, doctor.select(catalog.checks(), "quick")))
        assert "✗ fail  This machine has 0 of 8 expected NVIDIA GPUs." in said


def test_a_profile_without_a_gpu_says_so() -> None:
    report = of("no-gpu")
    facts = {**report.facts, "profiled": {"line": "true", "engine": "x", "engine_why": "y", "nothing": "no torch was imported"}}
    assert "Nothing to show: this machine has no NVIDIA GPU." in terminal.render(replace(report, facts=facts))


def test_one_check_is_counted_as_one() -> None:
    said = terminal.render(
        doctor.judge(machine.load("no-gpu"), doctor.select(catalog.checks(), "quick", ["gpu-on-bus", "driver"]))
    )
    assert "No other check ran; " in said
    assert "1 checks" not in said


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((), "no NVIDIA GPU found"),
        (("AMD",), "no NVIDIA GPU found, AMD GPU present but not covered"),
    ],
)
def test_a_gpu_of_another_vendor_is_named(others: tuple[str, ...], said: str) -> None:
    facts = {"gpus": [], "other_gpus": list(others)}
    assert heading.gpu_names(replace(REPORT, facts=facts)) == said


@pytest.mark.parametrize(
    ("seen", "said"), [("0", "no NVIDIA GPU found"), ("1", "1 GPU"), ("2", "2 GPUs"), ("unknown", "GPUs unknown")]
)
def test_gpus_are_counted_as_in_the_table_beside_the_host(seen: str, said: str) -> None:
    report = replace(REPORT, facts={}, comparison=(Difference("GPUs", "2", seen, False),))
    assert heading.gpu_names(report) == said


@pytest.mark.parametrize(("kind", "terminal_label", "label"), [("image", "Image", "Image"), ("container", "Inside", "Container")])
def test_a_container_is_not_called_an_image(kind: str, terminal_label: str, label: str) -> None:
    target = {"kind": kind, "container_name": "trainer", "image": "a:1", "container_engine": "docker 28", "gpu_mode": "none"}
    report = replace(REPORT, target=target)
    said = "trainer, image a:1, docker 28, without a GPU"
    assert f"\n{terminal_label:<8}{said}\n" in terminal.render(report)
    assert f"- {label}: {said}\n" in markdown.render(report)
    assert f"<dt>{label}</dt><dd>{said}</dd>" in html.render(report)


def test_the_level_is_not_blamed_for_what_was_not_measured() -> None:
    rows = [Result("gemm", Status.SKIP, "not measured", reason=Skip.NOT_MEASURED)]
    assert coverage(rows).sentence == "0 of 1 applicable checks ran; 1 not measured."


@pytest.mark.parametrize(
    ("case", "known"),
    [
        ("h100-measured", {"cudnn": "9.19.0", "nccl": "2.28.9", "nvcc": "13.0.88", "docker": None, "tensorflow": None}),
        ("no-gpu", {"container_toolkit": None}),
    ],
)
def test_versions_are_facts(case: str, known: dict[str, str | None]) -> None:
    versions = of(case).facts["versions"]
    assert {name: versions.get(name, "unknown") for name in known} == known


def test_a_library_that_pytorch_may_contain_is_not_called_absent() -> None:
    taken = machine.load("h100-measured")
    packages = [package for package in taken.replies["packages"].value if not package["name"].startswith("nvidia")]
    libraries = [library for library in taken.replies["libraries"].value if "nccl" not in library["path"]]
    replies = {**taken.replies, "packages": Reply("ok", packages), "libraries": Reply("ok", libraries)}
    report = doctor.judge(replace(taken, replies=replies), doctor.select(catalog.checks(), "quick"))
    assert "nccl" not in report.facts["versions"]


@pytest.mark.parametrize("words", [("-o", "r.html"), ("--for", "pytorch", "-o", "r.md"), ("--bundle", "r.tar.gz")])
def test_a_shared_report_is_summed_up_too(
    stub: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    run("check", "--save", str(tmp_path / "s.json"))
    monkeypatch.chdir(tmp_path)
    said = run("report", "s.json", *words).stderr.splitlines()
    assert said[-1] == f"Wrote {words[-1]}, redacted: nothing private was left in it"
    assert "✗ fail: 2 problems and 1 warning, the most severe first." in said
