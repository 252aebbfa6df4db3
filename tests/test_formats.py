"""Reports for machines that read: JUnit, SARIF and Prometheus, against their schemas and readers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import xmlschema
from each import each
from prometheus_client.parser import text_string_to_metric_families
from stand_in import run
from test_report import HEALTHY, REPORT, VERSIONS

from gpudoctor.model import Report, Result, Status
from gpudoctor.report import formats, notebook

SCHEMAS = Path(__file__).parent / "schemas"
MACHINE = Path(__file__).parent / "machines" / "no-gpu" / "snapshot.json"
EVIL = "\x1b]0;owned\x07\udcff\x00]]> <script> & \"quoted\" \\ 'x'\nnext line"
HOSTILE = replace(
    REPORT,
    target={"python": EVIL, "python_version": EVIL, "distribution": EVIL},
    facts={"driver_version": EVIL, "gpus": [{"name": EVIL}]},
    diagnosis=(replace(VERSIONS, title=EVIL, message=EVIL, why=EVIL, references=()),),
    checks=tuple(Result(status.value, status, EVIL, area=EVIL, blocked_by=EVIL) for status in Status),
)
ON_HOST = replace(HEALTHY, host=REPORT.checks, diagnosis=(replace(VERSIONS, on_host=True),))
EVERY = pytest.mark.parametrize("report", [REPORT, HEALTHY, HOSTILE, ON_HOST], ids=["broken", "healthy", "hostile", "container"])


@EVERY
def test_junit_follows_the_schema_of_jenkins(report: Report) -> None:
    xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd").validate(formats.render("junit", report))


@EVERY
def test_sarif_follows_its_schema(report: Report) -> None:
    published = json.loads((SCHEMAS / "sarif-2.1.0.json").read_text())
    jsonschema.validate(json.loads(formats.render("sarif", report)), published)


@EVERY
def test_prometheus_can_be_read(report: Report) -> None:
    rendered = formats.render("prometheus", report)
    families = {family.name: family.samples for family in text_string_to_metric_families(rendered)}
    assert len(families["gpudoctor_check"]) == len(report.checks) + len(report.host)
    for samples in families.values():
        labels = [tuple(sorted(sample.labels.items())) for sample in samples]
        assert len(labels) == len({*labels})
    [line] = formats.render("otlp", report).splitlines()
    [resource] = json.loads(line)["resourceMetrics"]
    [scope] = resource["scopeMetrics"]
    points = {metric["name"]: metric["gauge"]["dataPoints"] for metric in scope["metrics"]}
    assert {name: len(found) for name, found in points.items()} == {
        name: len(samples) for name, samples in families.items() if samples
    }
    assert all(point["timeUnixNano"].isdecimal() for found in points.values() for point in found)


def cases(report: Report) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(formats.render("junit", report))
    return {str(case.get("name")): case for case in root.iter("testcase")}


def test_junit_says_what_is_wrong_and_what_to_type() -> None:
    found = cases(REPORT)
    failure = found["driver-version"].find("failure")
    assert failure is not None
    assert failure.get("type") == VERSIONS.problem
    assert "  sudo reboot\n" in (failure.text or "")
    assert [name for name, case in found.items() if case.find("failure") is not None] == ["driver-version", "gpu-count"]
    assert [name for name, case in found.items() if case.find("error") is not None] == ["memlock"]
    blocked = found["nvml-answers"].find("skipped")
    assert blocked is not None
    assert blocked.get("message") == "blocked by driver-version"
    assert (found["thermal"].findtext("system-out") or "").startswith("warning: ")


def test_junit_tells_the_host_apart() -> None:
    failed = [case for case in cases(ON_HOST).values() if case.find("failure") is not None]
    assert {str(case.get("classname")) for case in failed} == {"gpudoctor.host.driver", "gpudoctor.host.cuda"}
    [failure] = [case.findtext("failure") or "" for case in failed if case.get("name") == "driver-version"]
    assert failure.startswith(VERSIONS.title)


def test_sarif_has_a_rule_for_each_problem_and_a_result_for_each_place() -> None:
    [run] = json.loads(formats.render("sarif", REPORT))["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    found = (*REPORT.diagnosis, *REPORT.notes)
    assert rules == sorted({entry.problem for entry in found})
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [entry.problem for entry in found]
    assert [result["level"] for result in run["results"]] == ["error", "error", "warning", "warning", "note", "note", "note"]
    assert len({str(result["partialFingerprints"]) for result in run["results"]}) == len(found)
    assert run["invocations"][0]["executionSuccessful"] is False


def test_prometheus_has_the_figures() -> None:
    rendered = formats.render("prometheus", REPORT)
    assert 'gpudoctor_measured{check="gemm",gpu="1",unit="TFLOP/s",what="GEMM bf16"} 512.0\n' in rendered
    assert 'gpudoctor_expected{check="gemm",gpu="1",unit="TFLOP/s",what="GEMM bf16"} 692.3\n' in rendered
    assert "\ngpudoctor_status 2.0\n" in rendered


@each(
    ("name", "form"),
    [
        ("a.html", "html"),
        ("A.MD", "markdown"),
        ("a.xml", "junit"),
        ("a.sarif", "sarif"),
        ("a.prom", "prometheus"),
        ("a.otlp", "otlp"),
        ("a", None),
    ],
)
def test_a_file_is_named_by_what_it_holds(name: str, form: str | None) -> None:
    assert formats.of(Path(name)) == form


@pytest.mark.parametrize("name", ["x.zip", "x.json.gz", "c.htlm", "c.yaml", "c.tar.xz"])
@pytest.mark.parametrize("command", [["report"], ["report", "--for", "github"], ["check"], ["diff", "a", "b"]])
def test_an_ending_of_something_else_is_refused_before_the_work(
    command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*command, "-o", name)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {name}: unknown ending; known are text (.txt), ")
    assert result.stderr.count("\n") == 1


@each("name", ["report", "job.log", "a.TEXT", "slurm.out", ".hidden", "/dev/null", "/dev/stdout"])
def test_a_name_that_asks_for_no_format_is_of_any(name: str) -> None:
    assert formats.named(Path(name)) is None


def test_otlp_is_one_line_also_when_redacted() -> None:
    written = run("report", str(MACHINE), "--format", "otlp", "--redact").stdout
    assert (written.count("\n"), written[-2:]) == (1, "}\n")


def test_a_format_that_was_chosen_goes_into_a_file_of_any_name(tmp_path: Path) -> None:
    file = tmp_path / "report.yaml"
    assert run("report", str(MACHINE), "--format", "json", "-o", str(file)).exit_code == 0
    assert run("check", "--replay", str(MACHINE), "--format", "json", "-o", str(file)).exit_code == 1
    assert json.loads(file.read_text())["schema"] == "gpudoctor.report/1"


@pytest.mark.parametrize(
    ("status", "shown", "number"), [(Status.SKIP, "– skip", 3), (Status.ERROR, "? error", 3), (Status.PASS, "✓ pass", 0)]
)
def test_where_nothing_could_be_looked_at_nothing_is_called_healthy(status: Status, shown: str, number: int) -> None:
    report = replace(HEALTHY, checks=(Result("nvml", status, "no answer", area="driver"),))
    assert formats.render("markdown", report).startswith(f"## gpudoctor: {shown}\n")
    assert f"\ngpudoctor_status {number}.0\n" in formats.render("prometheus", report)
    (run,) = json.loads(formats.render("sarif", report))["runs"]
    assert run["invocations"][0]["executionSuccessful"] is (status is Status.PASS)
    assert f"{shown}</span>" in notebook.render(report)
    assert "(-v)" not in formats.render("markdown", report)


def test_junit_counts_the_cases_that_are_there() -> None:
    unshown = Result("evidence-health", Status.SKIP, "nothing was given", area="evidence")
    root = ElementTree.fromstring(formats.render("junit", replace(REPORT, checks=(*REPORT.checks, unshown))))
    assert int(root.attrib["tests"]) == len(list(root.iter("testcase")))
