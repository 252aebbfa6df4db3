"""The report as SARIF 2.1.0, for code scanning: a problem is a rule, and each place where it occurs is a result.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpudoctor.model import Diagnosis, Ignored, Report, Status
from gpudoctor.plain import plain
from gpudoctor.report import findings, heading, words

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
PLACE = "gpudoctor"  # a result needs a file to be shown at, and a machine is none


def render(report: Report) -> str:
    log = _plain({"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report)]})
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode() + "\n"


def _plain(value: Any) -> Any:
    """Removes control characters, which replies of a machine can contain."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return plain(value) if isinstance(value, str) else value


def _run(report: Report) -> dict[str, Any]:
    found = (*report.diagnosis, *report.notes)
    rules = {entry.problem: entry for entry in reversed(found)}
    numbers = {problem: number for number, problem in enumerate(sorted(rules))}
    driver = {
        "name": "gpudoctor",
        "version": report.version,
        "rules": [_rule(problem, rules[problem], report) for problem in numbers],
    }
    about = {"system": heading.system(report), "gpu": heading.gpus(report), "python": heading.python(report)}
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": "gpudoctor/"},
        "invocations": [_invocation(report)],
        "results": [*(_result(entry, numbers[entry.problem]) for entry in found), *map(_suppressed, report.ignored)],
        "properties": {**about, "status": report.status.value, "coverage": report.coverage.sentence},
    }


def _invocation(report: Report) -> dict[str, Any]:
    """The checks that stopped with an error: their results are missing."""
    broke = [result for result in (*report.checks, *report.host) if result.status is Status.ERROR]
    notes = [{"level": "error", "message": {"text": f"{result.id}: {result.message}"}} for result in broke]
    taken = {"endTimeUtc": str(report.target["taken"])} if "taken" in report.target else {}
    return {
        "executionSuccessful": report.verdict not in (Status.ERROR, Status.SKIP) and not broke,
        **taken,
        "toolExecutionNotifications": notes,
    }


def _rule(problem: str, entry: Diagnosis, report: Report) -> dict[str, Any]:
    group = tuple(other for other in (*report.diagnosis, *report.notes) if other.problem == problem)
    help = {"helpUri": entry.references[0]} if entry.references else {}
    return {
        "id": problem,
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.why or entry.title},
        **help,
        "help": {"text": _help(group), "markdown": _help(group, fence="```")},
        "defaultConfiguration": {"level": _level(entry)},
        "properties": {"tags": ["gpu", entry.action.value]},
    }


def _help(group: findings.Group, fence: str = "") -> str:
    lines = [group[0].why]
    for fix in findings.fixes(group):
        lines += ["", fix.title + (":" if fix.command else "")]
        lines += [line for line in (f"{fence}sh" if fence else "", fix.command, fence) if line] if fix.command else []
    return "\n".join(lines).strip() or group[0].title


def _result(entry: Diagnosis, rule: int) -> dict[str, Any]:
    gpu = "machine" if entry.gpu is None else f"gpu{entry.gpu}"
    place = f"host/{gpu}" if entry.on_host else gpu
    doubt = findings.doubt(entry)
    return {
        "ruleId": entry.problem,
        "ruleIndex": rule,
        "level": _level(entry),
        "message": {"text": f"{findings.seen(entry)}. {doubt}" if doubt else findings.seen(entry)},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": PLACE}, "region": {"startLine": 1}},
                "logicalLocations": [{"name": gpu, "fullyQualifiedName": place, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {"problem/v1": f"{entry.problem}:{place}"},
        "properties": {
            "confidence": entry.confidence.value,
            "check": entry.check,
            "todo": words.to_do(entry),
            "explains": list(entry.explains),
        },
    }


def _suppressed(entry: Ignored) -> dict[str, Any]:
    """A problem that the user ignores."""
    place = "machine" if entry.gpu is None else f"gpu{entry.gpu}"
    return {
        "ruleId": entry.problem,
        "level": _level(entry),
        "message": {"text": f"{entry.title}: {entry.message}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": PLACE}, "region": {"startLine": 1}}}],
        "partialFingerprints": {"problem/v1": f"{entry.problem}:{'host/' if entry.on_host else ''}{place}"},
        "suppressions": [{"kind": "external", "justification": f"ignored until {entry.until}: {entry.reason}"}],
    }


def _level(entry: Diagnosis | Ignored) -> str:
    return {Status.FAIL: "error", Status.PASS: "note"}.get(entry.status, "warning")
