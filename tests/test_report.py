"""Every format, from one report that has every status. UPDATE_GOLDENS=1 rewrites tests/golden."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from each import each

from gpudoctor import comparing
from gpudoctor.model import (
    REPORT_SCHEMA,
    Action,
    Confidence,
    Coverage,
    Diagnosis,
    Figure,
    Fix,
    Measurements,
    Model,
    Opened,
    Report,
    Result,
    Status,
)
from gpudoctor.report import compared, findings, formats, markdown, schema, terminal, words
from gpudoctor.report import json as json_format

GOLDEN = Path(__file__).parent / "golden"

VERSIONS = Diagnosis(
    problem="driver-library-version-mismatch",
    title="User-space driver upgraded, old kernel module still loaded",
    why="The packages of the driver were upgraded while the module of the old release was loaded. The two halves must have "
    "exactly the same version, so no program can reach the GPU until the new module is loaded.",
    message="the kernel module is 999.88.77, the libraries are 999.99.01",
    action=Action.REBOOT,
    status=Status.FAIL,
    confidence=Confidence.CONFIRMED,
    check="driver-version",
    gpu=None,
    evidence={"module_version": "999.88.77", "library_versions": ("999.99.01",), "module_is_open": True},
    explains=("nvml-answers", "cuda-init", "nvlink"),
    fixes=(
        Fix(
            "Load the new kernel module",
            command="sudo reboot",
            risk="disruptive",
            needs=("root", "reboot"),
            verify="nvidia-smi",
        ),
        Fix(
            "Reload the modules without a reboot, once no program uses a GPU",
            command="sudo systemctl stop nvidia-persistenced nvidia-fabricmanager nvidia-dcgm display-manager docker\n"
            "sudo modprobe --remove nvidia_uvm nvidia_drm nvidia_modeset nvidia\n"
            "sudo modprobe nvidia",
            risk="disruptive",
            needs=("root", "drain"),
            verify="nvidia-smi",
            undo="sudo systemctl start nvidia-persistenced nvidia-fabricmanager nvidia-dcgm display-manager docker",
        ),
    ),
    references=("https://docs.nvidia.com/deploy/nvml-api/",),
)


def hot(gpu: int) -> Diagnosis:
    return Diagnosis(
        problem="gpu-thermal-slowdown",
        title="The GPU slows down because it is too hot",
        why="At its limit the GPU lowers its clocks to protect itself.",
        message=f"{90 + gpu} °C, slowdown at 87 °C",
        action=Action.REPLACE_HARDWARE,
        status=Status.WARN,
        confidence=Confidence.LIKELY,
        check="thermal",
        gpu=gpu,
        evidence={"temperature_c": 90 + gpu, "clock_reasons": ["sw_thermal_slowdown", "hw_thermal_slowdown"] * 4},
        explains=(),
        fixes=(
            Fix("Read the fans and the temperatures", command=f"nvidia-smi -i {gpu} -q -d TEMPERATURE"),
            Fix("Ask the data centre to look at the airflow"),
        ),
    )


def limited(gpu: int) -> Diagnosis:
    return replace(
        hot(gpu),
        problem="power-limit",
        title="The power limit is below its default",
        message=f"GPU {gpu}: 320 W instead of 450 W",
        status=Status.PASS,
        check="power",
        evidence={},
    )


FIRST_OF_HOT = (hot(0).fixes[0].command, hot(2).fixes[0].command)
COUNT = Diagnosis(
    problem="gpu-count-mismatch",
    title="Fewer GPUs answer than there are",
    why="",
    message="3 of 4 GPUs | `nvidia-smi` <shows> them to @root, see #12",
    action=Action.NONE,
    status=Status.FAIL,
    confidence=Confidence.UNKNOWN,
    check="gpu-count",
    gpu=None,
    evidence={
        "ruled_out": ["gpu-fell-off-bus", "cgroup-device-lost"],
        "could_not_check": {"xid": "the kernel log may not be read"},
        "log": "line one\nline two \x1b[31mred\x1b[0m " + "long " * 40,
    },
    explains=(),
    fixes=(),
)

REPORT = Report(
    schema=REPORT_SCHEMA,
    version="9.8.7",
    status=Status.FAIL,
    target={
        "kind": "interpreter",
        "python": "/opt/train/.venv/bin/python",
        "python_version": "3.12.1",
        "distribution": "Ubuntu 24.04.1 LTS",
        "kernel": "6.8.0-45-generic",
        "architecture": "x86_64",
        "wsl": 0,
        "container": "docker",
        "taken": "2025-01-31T03:04:05Z",
    },
    coverage=Coverage(7, 13, {"not permitted": 1}, "7 of 13 applicable checks ran; 1 not permitted (try as root)."),
    diagnosis=(VERSIONS, COUNT, hot(0), hot(2)),
    checks=(
        Result("system", Status.PASS, "Ubuntu 24.04.1 LTS, kernel 6.8.0-45-generic", area="machine"),
        Result("pci-gpus", Status.PASS, "4 GPUs on the PCI bus", 0.012, area="hardware"),
        Result("pci-bars", Status.PASS, "all memory windows have an address", area="hardware"),
        Result("resizable-bar", Status.PASS, "resizable BAR is on for every GPU", area="hardware"),
        Result("iommu", Status.SKIP, "no IOMMU here", area="hardware", reason="not applicable"),
        Result("kernel-module", Status.PASS, "loaded, 999.88.77", area="driver"),
        Result("driver-version", Status.FAIL, VERSIONS.message, 0.5, area="driver"),
        Result("nvml-answers", Status.BLOCKED, "needs driver-version", area="driver", blocked_by="driver-version"),
        Result("cuda-init", Status.BLOCKED, "needs driver-version", area="cuda", blocked_by="driver-version"),
        Result("gpu-count", Status.FAIL, COUNT.message, area="cuda"),
        Result("torch", Status.SKIP, "torch is not installed", area="python", reason="not installed"),
        Result("thermal", Status.WARN, f"{hot(0).message}; GPU 2: {hot(2).message}", area="health"),
        Result("xid", Status.SKIP, "the kernel log may not be read", area="health", reason="not permitted"),
        Result("nvlink", Status.BLOCKED, "needs driver-version", area="links", blocked_by="driver-version"),
        Result("memlock", Status.ERROR, "gpudoctor's own bug, please report it: KeyError: 'soft' " * 2, area="limits"),
        Result("weather", Status.PASS, "the sun shines", area="elsewhere"),
    ),
    measured=Measurements(
        {
            "gemm": (
                Figure("GEMM bf16", 693.0, "TFLOP/s", 0, 692.3, "70% of the datasheet's 989"),
                Figure("GEMM bf16", 512.0, "TFLOP/s", 1, 692.3, "70% of the datasheet's 989"),
            ),
            "memory-bandwidth": (
                Figure("memory read", 3050.0, "GB/s", 0, 2948.0, "88% of 3350"),
                Figure("memory copy", 3017.0, "GB/s", 0),
            ),
            "kernel-launch": (Figure("launch", 9.7, "µs", 0, 50.0, "any machine", less_is_better=True),),
        },
        (
            Model("7B", "fp16", 14.0, 1, 4.59),
            Model("7B", "int4", 3.5, 1, 1.15),
            Model("70B", "fp16", 140.0, None, None),
            Model("70B", "int4", 35.0, 1, 11.5),
            Model("405B", "fp16", 810.0, None, None),
            Model("405B", "int4", 202.5, None, None),
        ),
    ),
    facts={
        "driver_version": "999.88.77",
        "gpus": [{"index": index, "name": "NVIDIA H100 80GB HBM3"} for index in range(3)],
    },
    notes=(limited(0), limited(1), limited(2)),
)
HEALTHY = replace(
    REPORT,
    status=Status.PASS,
    diagnosis=(),
    checks=tuple(result for result in REPORT.checks if result.status is Status.PASS),
    coverage=Coverage(6, 6, {}, "6 of 6 applicable checks ran."),
)


GOLDENS = {
    "report.txt": lambda: terminal.render(REPORT),
    "report-verbose.txt": lambda: terminal.render(REPORT, verbose=True),
    "healthy.txt": lambda: terminal.render(HEALTHY),
    "report.md": lambda: markdown.render(REPORT),
    "report.json": lambda: json_format.render(REPORT),
}


@each("name", GOLDENS)
def test_golden(name: str) -> None:
    rendered = GOLDENS[name]()
    if os.environ.get("UPDATE_GOLDENS") == "1":
        (GOLDEN / name).write_text(rendered, encoding="utf-8")
    assert rendered == (GOLDEN / name).read_text(encoding="utf-8")


def test_a_gpu_in_no_table_is_said_to_be_judged_by_itself() -> None:
    [known, *_] = REPORT.measured.figures["gemm"]
    unlisted = replace(REPORT, measured=replace(REPORT.measured, figures={"gemm": (replace(known, unlisted=True),)}))
    assert "not in the tables" in terminal.render(unlisted)
    assert "not in the tables" not in terminal.render(REPORT)


@pytest.mark.parametrize("report", [REPORT, HEALTHY], ids=["broken", "healthy"])
def test_json_follows_the_published_schema(report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(schema.schema())
    jsonschema.validate(json.loads(json_format.render(report)), schema.schema(), jsonschema.Draft202012Validator)


def test_a_difference_follows_the_published_schema() -> None:
    one, other = Opened("a.json", HEALTHY, None), Opened("b.json", REPORT, None)
    plain = json.loads(compared.as_json(one, other, comparing.compare(one, other)))
    assert plain["only"][1]
    jsonschema.validate(plain, schema.of_difference(), jsonschema.Draft202012Validator)
    del plain["worse"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain, schema.of_difference(), jsonschema.Draft202012Validator)


def test_schema_refuses_another_shape() -> None:
    plain = json.loads(json_format.render(REPORT))
    del plain["diagnosis"][0]["fixes"][0]["verify"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain, schema.schema(), jsonschema.Draft202012Validator)


NOTE = "Note: The power limit is below its default (GPUs 0, 1 and 2: 320 W instead of 450 W). More: gpudoctor explain power-limit"


@each("format", ["text", "html", "markdown", "json", "junit", "sarif", "prometheus", "otlp"])
def test_a_note_is_not_counted(format: str) -> None:
    healthy = replace(HEALTHY, checks=(*HEALTHY.checks, Result("power", Status.PASS, limited(0).message, area="health")))
    assert words.headline(healthy) == words.headline(replace(healthy, notes=()))
    shown, without = formats.render(format, healthy), formats.render(format, replace(healthy, notes=()))
    said = {"json": '"notes": [', "sarif": '"level": "note"', "junit": limited(0).message, "prometheus": "", "otlp": ""}.get(
        format, NOTE
    )
    assert " ".join(said.split()) in " ".join(shown.split())
    assert shown.count("warn") == without.count("warn")


def test_gpus_with_the_same_finding_are_named_together() -> None:
    same, other = limited(0), replace(limited(3), message="GPU 3: 300 W instead of 450 W")
    assert findings.seen_by_all((same, other, limited(1))) == [
        "GPUs 0 and 1: 320 W instead of 450 W",
        "GPU 3: 300 W instead of 450 W",
    ]


def test_json_names_are_the_contract() -> None:
    plain = json.loads(json_format.render(REPORT))
    first = ["schema", "version", "status", "target", "coverage", "diagnosis", "checks", "measured", "facts"]
    assert [*plain] == [*first, "host", "comparison", "evidence", "knowledge", "ignored", "notes"]
    entry = plain["diagnosis"][0]
    assert {*entry} == {
        *("problem", "title", "message", "action", "confidence", "check", "gpu", "evidence", "explains", "fixes"),
        *("why", "status", "references", "on_host", "seen_in"),
    }
    assert {*entry["fixes"][0]} == {"title", "command", "risk", "needs", "verify", "undo"}
    assert {*plain["checks"][0]} == {"id", "status", "message", "seconds", "blocked_by", "reason", "area"}


def test_json_takes_any_evidence() -> None:
    odd = replace(VERSIONS, evidence={"paths": {Path("/dev")}, "ratio": float("nan")})
    plain = json.loads(json_format.render(replace(REPORT, diagnosis=(odd,))))
    assert plain["diagnosis"][0]["evidence"] == {"paths": ["/dev"], "ratio": None}


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("verbose", [False, True])
def test_only_lines_to_paste_are_wider_than_the_terminal(width: int, verbose: bool) -> None:
    fixes = [fix for entry in REPORT.diagnosis for fix in entry.fixes]
    commands = [line for fix in fixes for line in (*fix.command.splitlines(), *fix.undo.splitlines())]
    lines = terminal.render(REPORT, width, verbose=verbose).splitlines()
    assert [line for line in lines if len(line) > min(width, 100) and line.strip() not in commands] == []
    shown = {line.strip() for line in lines}
    assert {*commands} <= shown if verbose else shown & {*commands} == {"sudo reboot", *FIRST_OF_HOT}


def test_colours_in_a_terminal_only() -> None:
    coloured = terminal.render(REPORT, colours=True)
    assert "\x1b[31m✗ fail" in coloured
    assert "\x1b" not in terminal.render(REPORT)


@pytest.mark.parametrize(("no_color", "escapes"), [("", True), ("1", False)])
def test_no_color(monkeypatch: pytest.MonkeyPatch, no_color: str, escapes: bool) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    assert ("\x1b" in terminal.render(REPORT, *terminal.look())) is escapes


def test_a_pipe_gets_no_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "90")
    assert terminal.look() == (90, False)


def test_a_machine_cannot_command_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x9b31m\udcff[red]"
    finding = replace(VERSIONS, title=evil, message=evil, why=evil, evidence={evil: evil}, fixes=(Fix(evil, evil),))
    report = replace(REPORT, diagnosis=(finding,), target={"python": evil, "python_version": evil})
    for rendered in (terminal.render(report, verbose=True), markdown.render(report)):
        rendered.encode()
        assert not {"\x1b", "\x07", "\x9b"} & {*rendered}
        assert "[red" in rendered


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a|b", r"a\|b"),
        ("`x` *y* <b>", r"\`x\` \*y\* \<b\>"),
        ("ask @root about #12", "ask @\u200broot about #\u200b12"),
        ("two\nlines", "two lines"),
    ],
)
def test_markdown_text_is_itself(raw: str, shown: str) -> None:
    assert markdown.text(raw) == shown


@pytest.mark.parametrize(
    ("raw", "shown"), [("a`b", "``a`b``"), ("`a`", "`` `a` ``"), ("", "` `"), ("x" * 500, "`" + "x" * 400 + " …`")]
)
def test_markdown_code_span(raw: str, shown: str) -> None:
    assert markdown.code(raw) == shown


def test_a_fence_is_longer_than_what_it_holds() -> None:
    assert [*markdown.fenced("echo ```")][:3] == ["````sh", "echo ```", "````"]


def test_alternatives_of_one_title_stay_apart() -> None:
    both = replace(hot(0), fixes=(Fix("Cool", "a 0"), Fix("Cool", "b 0")))
    other = replace(hot(1), fixes=(Fix("Cool", "a 1"), Fix("Cool", "b 1")))
    assert [fix.command for fix in findings.fixes((both, other))] == ["a 0\na 1", "b 0\nb 1"]


def verdict(*statuses: Status) -> str:
    checks = tuple(Result(str(number), status, "") for number, status in enumerate(statuses))
    return words.headline(replace(REPORT, diagnosis=(), checks=checks))


def test_healthy_is_only_said_where_something_was_checked() -> None:
    assert verdict(Status.PASS, Status.SKIP).startswith("No problems found in the 1 check that ran.")
    assert verdict(Status.SKIP).startswith("No check could run")
    assert verdict(Status.PASS, Status.ERROR).startswith("No problems found, but 1 check ")


def test_areas_keep_their_order_and_unknown_ones_come_last() -> None:
    rows = [Result("a", Status.PASS, "", area=area) for area in ("mars", "limits", "machine", "venus")]
    assert [*words.by_area(rows)] == ["machine", "limits", "mars", "venus"]


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        ((Status.SKIP, Status.PASS), Status.PASS),
        ((Status.PASS, Status.WARN), Status.WARN),
        ((Status.WARN, Status.BLOCKED), Status.WARN),
        ((Status.ERROR, Status.FAIL), Status.FAIL),
    ],
)
def test_worst_status_of_an_area(statuses: tuple[Status, ...], worst: Status) -> None:
    assert words.worst([Result("a", status, "") for status in statuses]) is worst


def test_nothing_known_is_said() -> None:
    bare = Report(REPORT_SCHEMA, "9.8.7", Status.PASS, {}, Coverage(0, 0, {}, "0 checks ran."), (), (), Measurements(), {})
    rendered = terminal.render(bare)
    assert "GPU     GPUs unknown" in rendered
    assert "Python  unknown" in rendered
    assert "No check could run" in rendered
